#include "header.h"

#include <algorithm>
#include <cstring>

namespace slimexp {
namespace {

// The markers of ITU-T T.81, table B.1.
constexpr int kStartOfImage = 0xd8, kEndOfImage = 0xd9, kStartOfScan = 0xda, kTemporary = 0x01;
constexpr int kBaseline = 0xc0, kExtended = 0xc1, kProgressive = 0xc2;
constexpr int kHuffmanTable = 0xc4, kReserved = 0xc8, kArithmeticConditioning = 0xcc, kLastFrame = 0xcf;
constexpr int kQuantisationTable = 0xdb, kRestartInterval = 0xdd;
constexpr int kExif = 0xe1;

// A TIFF structure, whose numbers may be of either byte order; reading past its end gives zeros.
class Tiff {
 public:
  Tiff(const uint8_t* data, size_t size) : data_(data), size_(size) {
    big_ = size >= 2 && data[0] == 'M';
    valid_ = size >= 8 && data[0] == data[1] && (data[0] == 'M' || data[0] == 'I') && Number(2, 2) == 42;
  }

  // Returns the orientation of the first directory, tag 0x0112, or 1.
  int Orientation() const {
    if (!valid_) return 1;
    const size_t directory = Number(4, 4);
    const size_t count = Number(directory, 2);
    for (size_t i = 0; i < count; ++i) {
      const size_t entry = directory + 2 + 12 * i;
      if (entry + 12 > size_) return 1;
      if (Number(entry, 2) != 0x0112) continue;
      const uint32_t type = Number(entry + 2, 2);
      const uint32_t value = type == 3 ? Number(entry + 8, 2) : type == 4 ? Number(entry + 8, 4) : 1;
      return Number(entry + 4, 4) == 1 && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
    return 1;
  }

 private:
  uint32_t Number(size_t at, int bytes) const {
    if (at > size_ || size_ - at < static_cast<size_t>(bytes)) return 0;
    uint32_t value = 0;
    for (int i = 0; i < bytes; ++i) value = value << 8 | data_[at + (big_ ? i : bytes - 1 - i)];
    return value;
  }

  const uint8_t* data_;
  size_t size_;
  bool big_, valid_;
};

// An end marker can't occur within the compressed data, so any after their start is the picture's.
bool HasEnd(const uint8_t* data, size_t size, size_t from) {
  if (size >= from + 2 && data[size - 2] == 0xff && data[size - 1] == kEndOfImage) return true;
  const uint8_t* at = data + from;
  const uint8_t* end = data + size;
  while (at < end && (at = static_cast<const uint8_t*>(std::memchr(at, 0xff, end - at))) != nullptr) {
    if (at + 1 < end && at[1] == kEndOfImage) return true;
    ++at;
  }
  return false;
}

}  // namespace

bool ReadHeader(const uint8_t* data, size_t size, Header* header) {
  *header = Header();
  if (size < 4 || data[0] != 0xff || data[1] != kStartOfImage) return false;
  bool has_frame = false, is_exif_past = false;
  size_t at = 2;
  for (;;) {
    // Bytes that belong to nothing before a marker, and any number of fill bytes in it, are passed over as libjpeg does.
    while (at < size && data[at] != 0xff) ++at;
    while (at < size && data[at] == 0xff) ++at;
    if (at + 3 > size) return false;
    const int marker = data[at++];
    if (marker == 0 || marker == kTemporary || (marker >= 0xd0 && marker <= 0xd7)) continue;
    if (marker == kStartOfImage || marker == kEndOfImage) return false;
    const size_t length = data[at] << 8 | data[at + 1];
    if (length < 2 || length > size - at) return false;
    const uint8_t* body = data + at + 2;
    const size_t body_size = length - 2;
    at += length;
    if (marker == kStartOfScan) return has_frame && HasEnd(data, size, at);
    // The standard has EXIF before all tables and the frame (EXIF 2.3, section 4.5.4).
    if (marker == kHuffmanTable || marker == kArithmeticConditioning || marker == kQuantisationTable ||
        marker == kRestartInterval) {
      is_exif_past = true;
    }
    if (marker >= kBaseline && marker <= kLastFrame && marker != kHuffmanTable && marker != kReserved &&
        marker != kArithmeticConditioning) {
      if (has_frame || body_size < 6 || marker > kProgressive || body[0] != 8) return false;
      header->height = body[1] << 8 | body[2];
      header->width = body[3] << 8 | body[4];
      if ((body[5] != 1 && body[5] != 3) || header->height == 0 || header->width == 0) return false;
      has_frame = is_exif_past = true;
    } else if (marker == kExif && !is_exif_past && body_size >= 6 && std::memcmp(body, "Exif\0\0", 6) == 0) {
      is_exif_past = true;
      header->orientation = Tiff(body + 6, body_size - 6).Orientation();
    }
  }
}

static_assert(kExtended == kBaseline + 1 && kProgressive == kExtended + 1, "the frames that are taken lie together");

}  // namespace slimexp
