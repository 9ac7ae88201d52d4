// Loops over pixels: the two passes of a bilinear resize, and colour distortions.
#ifndef SLIMEXP_KERNELS_H_
#define SLIMEXP_KERNELS_H_

#include <cstddef>
#include <cstdint>

namespace slimexp {

enum class PixelType { kFloat, kUint8, kBfloat16 };

inline size_t PixelBytes(PixelType type) {
  return type == PixelType::kFloat ? 4 : type == PixelType::kBfloat16 ? 2 : 1;
}

// Weights of a row's pixels are whole numbers that add up to this, so that one multiply-add instruction takes two taps.
constexpr int kWeightOne = 1 << 14;
// The vector code reads eight bytes from each pixel on, and writes eight floats from each pair of pixels on.
constexpr int kRowPadBytes = 8;
constexpr int kLinePadFloats = 8;

// One distortion of the colours; `value` is a delta for `b` and `h`, a factor for `s` and `c`.
struct ColorStep {
  char kind;    // b: brightness, s: saturation, h: hue, c: contrast
  float value;
};
constexpr int kMaxColorSteps = 16;

struct Kernels {
  // Resizes a row of RGB bytes to `size` pixels: `out` gets 3 * size sums of two taps, times kWeightOne.
  // offsets [size]: where the lower tap starts, in bytes; weights [size, 4, 2]: of the lower and upper tap, four times.
  void (*across)(const uint8_t* row, const int32_t* offsets, const int16_t* weights, int size, float* out);
  // out[i] = upper[i] * a + lower[i] * b + offset[i], as float; rounded and clamped; or rounded to bfloat16.
  void (*blend_float)(const float* upper, const float* lower, float a, float b, const float* offset, int n, void* out);
  void (*blend_uint8)(const float* upper, const float* lower, float a, float b, const float* offset, int n, void* out);
  void (*blend_bfloat16)(const float* upper, const float* lower, float a, float b, const float* offset, int n,
                         void* out);
  // Distorts `count` RGB pixels of 0..255 in place, and clips them to 0..255 at the end.
  void (*distort)(float* pixels, int64_t count, const ColorStep* steps, int num_steps);
};

// The fastest that this processor has.
const Kernels& BestKernels();
// Those without any instruction that not every processor has.
const Kernels& PortableKernels();

}  // namespace slimexp

#endif  // SLIMEXP_KERNELS_H_
