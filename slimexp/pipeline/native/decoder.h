// From the bytes of a JPEG to a finished square image: only what the window needs is decoded, and rows are resized as
// they come, so that no picture is ever held as a whole.
#ifndef SLIMEXP_DECODER_H_
#define SLIMEXP_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels.h"

namespace slimexp {

// In pixels of the picture as displayed, that is after its orientation is applied.
struct Window {
  int y, x, height, width;
};

// What is asked for of one picture.
struct Request {
  const uint8_t* data;
  size_t size;
  Window window;
  int orientation;  // EXIF's, 1..8.
  bool flip;        // Mirror left and right, after the orientation.
  ColorStep steps[kMaxColorSteps];
  int num_steps;
};

// What all images of a batch have in common. A finished value is `value * scale + offset[channel]`, of values 0..255.
struct Target {
  int size;
  PixelType type;
  float scale;
  float offset[3];
  int64_t max_pixels;  // Pictures of more are left; 0: no limit.
};

enum class Outcome {
  kDone,
  kLeft,           // No JPEG for this decoder, or a damaged one.
  kOutsideWindow,  // The window is not within the picture.
};

// Decodes one picture at a time; each thread has one of its own. It keeps its buffers from picture to picture.
class Decoder {
 public:
  explicit Decoder(const Kernels& kernels = BestKernels());
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Writes size * size * 3 values to `out`, zeros if the outcome is not kDone. A picture for which memory is
  // short is left.
  Outcome Decode(const Request& request, const Target& target, void* out);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slimexp

#endif  // SLIMEXP_DECODER_H_
