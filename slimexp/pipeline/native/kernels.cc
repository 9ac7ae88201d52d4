#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// The bodies are compiled once for any processor and once for those with AVX2: inlined into a function that may use
// these instructions, a plain loop is made of them.
#define BODY static inline __attribute__((always_inline))

namespace slimexp {
namespace {

BODY void AcrossBody(const uint8_t* row, const int32_t* offsets, const int16_t* weights, int size, float* out) {
  for (int i = 0; i < size; ++i) {
    const uint8_t* pixel = row + offsets[i];
    const int lower = weights[8 * i], upper = weights[8 * i + 1];
    for (int c = 0; c < 3; ++c) out[3 * i + c] = static_cast<float>(pixel[c] * lower + pixel[c + 3] * upper);
  }
}

BODY void BlendFloatBody(const float* __restrict upper, const float* __restrict lower, float a, float b,
                         const float* __restrict offset, int n, float* __restrict out) {
  for (int i = 0; i < n; ++i) out[i] = upper[i] * a + (lower[i] * b + offset[i]);
}

BODY void BlendUint8Body(const float* __restrict upper, const float* __restrict lower, float a, float b,
                         const float* __restrict offset, int n, uint8_t* __restrict out) {
  for (int i = 0; i < n; ++i) {
    float value = upper[i] * a + (lower[i] * b + offset[i]) + 0.5f;
    value = value > 0.0f ? value : 0.0f;
    value = value < 255.0f ? value : 255.0f;
    out[i] = static_cast<uint8_t>(static_cast<int32_t>(value));
  }
}

BODY void BlendBfloat16Body(const float* __restrict upper, const float* __restrict lower, float a, float b,
                            const float* __restrict offset, int n, uint16_t* __restrict out) {
  for (int i = 0; i < n; ++i) {
    const float value = upper[i] * a + (lower[i] * b + offset[i]);
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits += 0x7fff + ((bits >> 16) & 1);  // To the nearest, and to the even one of two.
    out[i] = static_cast<uint16_t>(bits >> 16);
  }
}

BODY float Least(float a, float b) { return a < b ? a : b; }
BODY float Greatest(float a, float b) { return a > b ? a : b; }

// Pixels are distorted in planes of this many, which stay in the nearest cache.
constexpr int kPlane = 512;

struct Planes {
  float r[kPlane], g[kPlane], b[kPlane];
};

// Scales the saturation of hue, saturation, value: s' = clip(s * factor, 0, 1). With the hue and the greatest channel
// kept, each channel's distance from the greatest changes by s' / s; no need to go through the hue.
BODY void SaturateBody(Planes* __restrict p, int n, float factor) {
  for (int i = 0; i < n; ++i) {
    const float value = Greatest(Greatest(p->r[i], p->g[i]), p->b[i]);
    const float range = value - Least(Least(p->r[i], p->g[i]), p->b[i]);
    // A pixel of no light has no saturation and becomes grey; so is one without a range.
    const bool has_hue = value > 0.0f && range > 0.0f;
    const float saturation = has_hue ? range / value : 1.0f;
    const float wanted = Least(Greatest(saturation * factor, 0.0f), 1.0f);
    const float keep = has_hue ? wanted / saturation : 0.0f;
    p->r[i] = value - (value - p->r[i]) * keep;
    p->g[i] = value - (value - p->g[i]) * keep;
    p->b[i] = value - (value - p->b[i]) * keep;
  }
}

// A channel of the hexcone: `sector` is its distance along it, in 0..6.
BODY float HexconeBody(float sector, float least, float range) {
  const float ramp = Least(Greatest(std::fabs(sector - 3.0f) - 1.0f, 0.0f), 1.0f);
  return least + range * ramp;
}

BODY float WrapBody(float sector) {
  sector = sector < 0.0f ? sector + 6.0f : sector;
  return sector >= 6.0f ? sector - 6.0f : sector;
}

// Turns the hue by `delta` of a full turn, -1..1; least and greatest channel stay what they are.
BODY void TurnBody(Planes* __restrict p, int n, float delta) {
  const float turn = delta * 6.0f;
  for (int i = 0; i < n; ++i) {
    const float r = p->r[i], g = p->g[i], b = p->b[i];
    const float greatest = Greatest(Greatest(r, g), b), least = Least(Least(r, g), b);
    const float range = greatest - least;
    const float inverse = range > 0.0f ? 1.0f / range : 0.0f;
    const float from_red = (g - b) * inverse;
    const float from_green = (b - r) * inverse + 2.0f;
    const float from_blue = (r - g) * inverse + 4.0f;
    float hue = r == greatest ? from_red : g == greatest ? from_green : from_blue;
    hue = WrapBody(WrapBody(hue) + turn);
    // Red is full around 0, green around 2, blue around 4.
    p->r[i] = HexconeBody(hue, least, range);
    p->g[i] = HexconeBody(WrapBody(hue - 2.0f), least, range);
    p->b[i] = HexconeBody(WrapBody(hue - 4.0f), least, range);
  }
}

BODY void ContrastBody(float* __restrict values, int n, float factor, float mean) {
  for (int i = 0; i < n; ++i) values[i] = (values[i] - mean) * factor + mean;
}

BODY void AddBody(float* __restrict values, int n, float delta) {
  for (int i = 0; i < n; ++i) values[i] += delta;
}

BODY float ClipBody(float value) { return Least(Greatest(value, 0.0f), 1.0f) * 255.0f; }

BODY void DistortBody(float* pixels, int64_t count, const ColorStep* steps, int num_steps) {
  float mean[3] = {0, 0, 0};
  int begin = 0;
  // A contrast needs the means of the whole image as the steps before it left it. So a pass over the image ends before
  // each contrast, having taken the means, and the next pass begins with it.
  for (bool first = true, last = false; !last; first = false) {
    int end = begin + (first ? 0 : 1);
    while (end < num_steps && steps[end].kind != 'c') ++end;
    last = end == num_steps;
    double sum[3] = {0, 0, 0};
    for (int64_t start = 0; start < count; start += kPlane) {
      const int n = static_cast<int>(std::min<int64_t>(kPlane, count - start));
      float* at = pixels + 3 * start;
      const float unit = first ? 1.0f / 255.0f : 1.0f;
      Planes p;
      for (int i = 0; i < n; ++i) {
        p.r[i] = at[3 * i] * unit;
        p.g[i] = at[3 * i + 1] * unit;
        p.b[i] = at[3 * i + 2] * unit;
      }
      for (int step = begin; step < end; ++step) {
        const float value = steps[step].value;
        switch (steps[step].kind) {
          case 'b':
            AddBody(p.r, n, value);
            AddBody(p.g, n, value);
            AddBody(p.b, n, value);
            break;
          case 's': SaturateBody(&p, n, value); break;
          case 'h': TurnBody(&p, n, value); break;
          case 'c':
            ContrastBody(p.r, n, value, mean[0]);
            ContrastBody(p.g, n, value, mean[1]);
            ContrastBody(p.b, n, value, mean[2]);
            break;
        }
      }
      if (last) {
        for (int i = 0; i < n; ++i) {
          at[3 * i] = ClipBody(p.r[i]);
          at[3 * i + 1] = ClipBody(p.g[i]);
          at[3 * i + 2] = ClipBody(p.b[i]);
        }
      } else {
        for (int i = 0; i < n; ++i) {
          sum[0] += at[3 * i] = p.r[i];
          sum[1] += at[3 * i + 1] = p.g[i];
          sum[2] += at[3 * i + 2] = p.b[i];
        }
      }
    }
    for (int c = 0; c < 3; ++c) mean[c] = static_cast<float>(sum[c] / static_cast<double>(count));
    begin = end;
  }
}

// A function of Kernels for each of the bodies.
#define DEFINE_KERNELS(SUFFIX, ATTRIBUTES, ACROSS)                                                                 \
  ATTRIBUTES void Across##SUFFIX(const uint8_t* row, const int32_t* offsets, const int16_t* weights, int size,     \
                                 float* out) {                                                                     \
    ACROSS(row, offsets, weights, size, out);                                                                      \
  }                                                                                                                \
  ATTRIBUTES void BlendFloat##SUFFIX(const float* upper, const float* lower, float a, float b, const float* offset, \
                                     int n, void* out) {                                                           \
    BlendFloatBody(upper, lower, a, b, offset, n, static_cast<float*>(out));                                       \
  }                                                                                                                \
  ATTRIBUTES void BlendUint8##SUFFIX(const float* upper, const float* lower, float a, float b, const float* offset, \
                                     int n, void* out) {                                                           \
    BlendUint8Body(upper, lower, a, b, offset, n, static_cast<uint8_t*>(out));                                     \
  }                                                                                                                \
  ATTRIBUTES void BlendBfloat16##SUFFIX(const float* upper, const float* lower, float a, float b,                  \
                                        const float* offset, int n, void* out) {                                   \
    BlendBfloat16Body(upper, lower, a, b, offset, n, static_cast<uint16_t*>(out));                                 \
  }                                                                                                                \
  ATTRIBUTES void Distort##SUFFIX(float* pixels, int64_t count, const ColorStep* steps, int num_steps) {           \
    DistortBody(pixels, count, steps, num_steps);                                                                  \
  }                                                                                                                \
  const Kernels k##SUFFIX = {Across##SUFFIX, BlendFloat##SUFFIX, BlendUint8##SUFFIX, BlendBfloat16##SUFFIX,        \
                             Distort##SUFFIX};

DEFINE_KERNELS(Portable, , AcrossBody)

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,fma")))

AVX2 void AcrossPairs(const uint8_t* row, const int32_t* offsets, const int16_t* weights, int size, float* out) {
  // Words r g b r g b . . of two neighbouring pixels -> r r g g b b . ., the taps of each channel side by side.
  const __m256i pair = _mm256_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1,  //
                                        0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1);
  const __m256i close_up = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7);
  int i = 0;
  for (; i + 2 <= size; i += 2) {
    int64_t two[2];
    std::memcpy(two, row + offsets[i], 8);
    std::memcpy(two + 1, row + offsets[i + 1], 8);
    const __m256i words = _mm256_shuffle_epi8(_mm256_cvtepu8_epi16(_mm_set_epi64x(two[1], two[0])), pair);
    const __m256i weight = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + 8 * i));
    const __m256i sums = _mm256_permutevar8x32_epi32(_mm256_madd_epi16(words, weight), close_up);
    _mm256_storeu_ps(out + 3 * i, _mm256_cvtepi32_ps(sums));
  }
  if (i < size) AcrossBody(row, offsets + i, weights + 8 * i, 1, out + 3 * i);
}

DEFINE_KERNELS(Avx2, AVX2, AcrossPairs)
#endif

}  // namespace

const Kernels& PortableKernels() { return kPortable; }

const Kernels& BestKernels() {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2) return kAvx2;
#endif
  return kPortable;
}

}  // namespace slimexp
