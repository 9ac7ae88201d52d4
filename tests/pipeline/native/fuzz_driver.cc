// Feeds damaged JPEGs to the decoder; built with sanitizers by fuzz.py.
//
//   fuzz_driver SECONDS SEED FILE...
//
// Each round takes one of the files, damages it, and asks for a random window, orientation, size, type and colours. The
// sanitizers end the process when anything is amiss; the file at fault is then written to fuzz-finding.jpg.
#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "decoder.h"
#include "header.h"

namespace {

using Bytes = std::vector<uint8_t>;

std::mt19937_64 generator;
const uint8_t* current;
size_t current_size;

int64_t Draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(generator); }

void KeepFinding() {
  if (FILE* file = std::fopen("fuzz-finding.jpg", "wb")) {
    std::fwrite(current, 1, current_size, file);
    std::fclose(file);
    std::fprintf(stderr, "The input is in fuzz-finding.jpg\n");
  }
}

// Returns where one of the file's segments starts: at its marker.
size_t SomeSegment(const Bytes& bytes) {
  std::vector<size_t> segments;
  for (size_t at = 2; at + 4 <= bytes.size() && bytes[at] == 0xff;) {
    segments.push_back(at);
    if (bytes[at + 1] == 0xda) break;
    at += 2 + (bytes[at + 2] << 8 | bytes[at + 3]);
  }
  return segments.empty() ? 0 : segments[Draw(0, segments.size() - 1)];
}

void Damage(Bytes* bytes, const Bytes& other) {
  if (bytes->size() < 8) return;
  const size_t size = bytes->size();
  switch (Draw(0, 9)) {
    case 0:  // Bits anywhere.
      for (int i = Draw(1, 8); i > 0; --i) (*bytes)[Draw(0, size - 1)] ^= 1 << Draw(0, 7);
      break;
    case 1:  // Bytes in the headers.
      for (int i = Draw(1, 4); i > 0; --i) (*bytes)[Draw(0, std::min<size_t>(size, 700) - 1)] = Draw(0, 255);
      break;
    case 2: {  // A cut, with or without an end marker put back.
      bytes->resize(Draw(2, size));
      if (Draw(0, 1)) bytes->insert(bytes->end(), {0xff, 0xd9});
      break;
    }
    case 3: {  // A segment's first bytes: its length, a frame's size, sampling and components, an EXIF directory.
      const size_t at = SomeSegment(*bytes);
      for (int i = Draw(1, 3); i > 0; --i) {
        const size_t where = at + Draw(1, 40);
        if (where < size) (*bytes)[where] = Draw(0, 3) ? Draw(0, 255) : Draw(0, 4);
      }
      break;
    }
    case 4: {  // A piece lost.
      const size_t from = Draw(2, size - 1), length = std::min<size_t>(Draw(1, 400), size - from);
      bytes->erase(bytes->begin() + from, bytes->begin() + from + length);
      break;
    }
    case 5: {  // A piece twice.
      const size_t from = Draw(0, size - 1), length = std::min<size_t>(Draw(1, 400), size - from);
      const Bytes piece(bytes->begin() + from, bytes->begin() + from + length);
      bytes->insert(bytes->begin() + Draw(2, size), piece.begin(), piece.end());
      break;
    }
    case 6: {  // The beginning of one file, the rest of another.
      const size_t from = Draw(0, other.size());
      bytes->resize(Draw(2, size));
      bytes->insert(bytes->end(), other.begin() + from, other.end());
      break;
    }
    case 7: {  // A marker where none belongs.
      const uint8_t marker = Draw(0xc0, 0xff);
      bytes->insert(bytes->begin() + Draw(2, size), {0xff, marker});
      break;
    }
    case 8: {  // A segment twice.
      const size_t at = SomeSegment(*bytes);
      if (at + 4 > size) break;
      const size_t end = std::min<size_t>(size, at + 2 + ((*bytes)[at + 2] << 8 | (*bytes)[at + 3]));
      const Bytes piece(bytes->begin() + at, bytes->begin() + end);
      bytes->insert(bytes->begin() + at, piece.begin(), piece.end());
      break;
    }
    case 9:  // As it is.
      break;
  }
}

int Some(int64_t high) { return static_cast<int>(Draw(0, 9) ? Draw(0, high) : Draw(-3, high + 3)); }

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: fuzz_driver SECONDS SEED FILE...\n");
    return 2;
  }
  std::vector<Bytes> files;
  for (int i = 3; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  generator.seed(std::strtoull(argv[2], nullptr, 10));
  __asan_set_death_callback(KeepFinding);
  slimexp::Decoder best, portable(slimexp::PortableKernels());
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(std::atof(argv[1]));
  long rounds = 0, done = 0, headers = 0, outside = 0;
  for (; std::chrono::steady_clock::now() < end; ++rounds) {
    Bytes bytes = files[Draw(0, files.size() - 1)];
    for (int i = Draw(1, 3); i > 0; --i) Damage(&bytes, files[Draw(0, files.size() - 1)]);
    // In a block of exactly its size, so that a byte read past it is noticed.
    auto* data = static_cast<uint8_t*>(std::malloc(bytes.size() + !bytes.size()));
    std::memcpy(data, bytes.data(), bytes.size());
    current = data;
    current_size = bytes.size();

    slimexp::Header header;
    const bool is_taken = slimexp::ReadHeader(data, bytes.size(), &header);
    headers += is_taken;
    if (header.orientation < 1 || header.orientation > 8) std::abort();
    int height = is_taken ? header.height : 64, width = is_taken ? header.width : 64;
    slimexp::Request request = {};
    request.data = data;
    request.size = bytes.size();
    request.orientation = Draw(0, 2) ? header.orientation : Draw(1, 8);
    if (request.orientation >= 5) std::swap(height, width);
    request.window.y = Some(height - 1);
    request.window.x = Some(width - 1);
    request.window.height = Some(height - request.window.y);
    request.window.width = Some(width - request.window.x);
    request.flip = Draw(0, 1);
    request.num_steps = Draw(0, 2) ? 0 : Draw(1, slimexp::kMaxColorSteps);
    for (int i = 0; i < request.num_steps; ++i) request.steps[i] = {"bshc"[Draw(0, 3)], Draw(-200, 200) / 100.0f};
    slimexp::Target target = {};
    target.size = Draw(0, 3) ? Draw(1, 48) : Draw(1, 260);
    target.type = static_cast<slimexp::PixelType>(Draw(0, 2));
    target.scale = Draw(-20, 20) / 10.0f;
    for (float& offset : target.offset) offset = Draw(-300, 300);
    // Sizes that are made up would take most of the time.
    target.max_pixels = Draw(0, 499) ? 1 << 20 : 0;
    const size_t values = static_cast<size_t>(target.size) * target.size * 3;
    void* image = std::malloc(values * slimexp::PixelBytes(target.type));
    const slimexp::Outcome outcome = (Draw(0, 1) ? best : portable).Decode(request, target, image);
    done += outcome == slimexp::Outcome::kDone;
    outside += outcome == slimexp::Outcome::kOutsideWindow;
    // A decoder that has seen other pictures makes the same as a new one, and so do the two kinds of loops, but for the
    // last digits (colours may tip over where a hue is undefined).
    if (Draw(0, 7) == 0) {
      slimexp::Decoder fresh;
      auto* one = static_cast<uint8_t*>(std::malloc(values * slimexp::PixelBytes(target.type)));
      if (best.Decode(request, target, image) != outcome || fresh.Decode(request, target, one) != outcome) std::abort();
      if (std::memcmp(image, one, values * slimexp::PixelBytes(target.type)) != 0) std::abort();
      if (portable.Decode(request, target, one) != outcome) std::abort();
      const bool is_plain = request.num_steps == 0 && target.type == slimexp::PixelType::kFloat;
      for (size_t i = 0; is_plain && i < values; ++i) {
        if (std::fabs(reinterpret_cast<float*>(one)[i] - static_cast<float*>(image)[i]) > 1e-2f) std::abort();
      }
      std::free(one);
    }
    std::free(image);
    std::free(data);
  }
  std::printf("%ld rounds: %ld headers taken, %ld images made, %ld windows outside; no finding\n", rounds, headers, done,
              outside);
  return 0;
}
