#include "decoder.h"

#include <csetjmp>
#include <cstdio>

#include <jpeglib.h>
// Needs the types of jpeglib.h.
#include <jerror.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace slimexp {
namespace {

// The rows that libjpeg gives out at once, at most: a row group of the highest sampling factor.
constexpr int kMaxRows = 4;
// Of progressive pictures all coefficients are kept; this bounds what those in the making have together. One that needs
// more waits until it is alone, and one that needs over the second limit is left.
constexpr int64_t kCoefficientBudget = int64_t{512} << 20;
constexpr int64_t kMaxCoefficients = int64_t{1} << 30;
// More scans than any encoder writes: a small file could keep a thread busy for minutes.
constexpr int kMaxScans = 100;
// The lines of a transposed image that are put in place together, so that whole cache lines are written.
constexpr int kBlock = 16;

// Memory that pictures share. It is never freed: threads may still use it while the process ends.
class Budget {
 public:
  void Take(int64_t bytes) {
    std::unique_lock<std::mutex> lock(mutex_);
    freed_.wait(lock, [&] { return used_ == 0 || used_ + bytes <= kCoefficientBudget; });
    used_ += bytes;
  }
  void Free(int64_t bytes) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      used_ -= bytes;
    }
    freed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  int64_t used_ = 0;
};

Budget& Coefficients() {
  static Budget* const budget = new Budget;
  return *budget;
}

// libjpeg's way of reporting, without a word to the terminal or an end of the process.
struct ErrorTrap {
  jpeg_error_mgr manager;
  jmp_buf back;
  bool is_damaged;
};

void OnError(j_common_ptr info) { longjmp(reinterpret_cast<ErrorTrap*>(info->err)->back, 1); }

void OnMessage(j_common_ptr info, int level) {
  if (level >= 0) return;  // A trace.
  const int code = info->err->msg_code;
  // These say nothing of the pixels: bytes between two segments as some cameras leave them, and headers of a dialect.
  if (code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM) return;
  OnError(info);
}

void OnProgress(j_common_ptr info) {
  auto* jpeg = reinterpret_cast<j_decompress_ptr>(info);
  if (jpeg->is_decompressor && jpeg->input_scan_number > kMaxScans) OnError(info);
}

// A stretch of stored pixels along one axis.
struct Stretch {
  int start, length;
};

// How stored rows and columns become displayed ones. EXIF 2.3, tag 0x0112.
struct Turn {
  bool transposed, rows_reversed, columns_reversed;

  Turn(int orientation, bool flip) {
    transposed = orientation >= 5;
    rows_reversed = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    columns_reversed = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    if (flip) (transposed ? rows_reversed : columns_reversed) ^= true;
  }
};

// The two stored pixels that each resized pixel lies between, in the stored order; counted from `first`.
struct Taps {
  std::vector<int> upper, lower;  // Ascending, lower is upper or the one after it.
  std::vector<float> part;        // Of `lower`, 0..1.
  int first, last;                // The first and the last stored pixel that may be used.

  // Half-pixel centres, clamped to the window. At 1/k scale, scaled pixel i is the mean of k pixels from i * k on.
  void Make(int size, Stretch window, int scale) {
    upper.resize(size);
    lower.resize(size);
    part.resize(size);
    first = window.start / scale;
    last = (window.start + window.length - 1) / scale;
    const double step = static_cast<double>(window.length) / size / scale;
    const double start = static_cast<double>(window.start) / scale - first - 0.5;
    const int end = last - first;
    for (int i = 0; i < size; ++i) {
      const double at = start + (i + 0.5) * step;
      const double floor = std::floor(at);
      const int tap = static_cast<int>(floor);
      upper[i] = std::min(std::max(tap, 0), end);
      lower[i] = std::min(std::max(tap + 1, 0), end);
      part[i] = static_cast<float>(at - floor);
    }
  }
};

Stretch Reversed(Stretch stretch, int side, bool reversed) {
  return reversed ? Stretch{side - stretch.start - stretch.length, stretch.length} : stretch;
}

bool IsWithin(Stretch stretch, int side) {
  return stretch.start >= 0 && stretch.length >= 1 && stretch.length <= side && stretch.start <= side - stretch.length;
}

}  // namespace

class Decoder::Impl {
 public:
  explicit Impl(const Kernels& kernels) : kernels_(kernels) {
    jpeg_.err = jpeg_std_error(&trap_.manager);
    trap_.manager.error_exit = OnError;
    trap_.manager.emit_message = OnMessage;
    // Out of memory is the only error here.
    if (setjmp(trap_.back)) throw std::bad_alloc();
    jpeg_create_decompress(&jpeg_);
    for (int i = 0; i < NUM_QUANT_TBLS; ++i) jpeg_.quant_tbl_ptrs[i] = jpeg_alloc_quant_table(Common());
    for (int i = 0; i < NUM_HUFF_TBLS; ++i) {
      jpeg_.dc_huff_tbl_ptrs[i] = jpeg_alloc_huff_table(Common());
      jpeg_.ac_huff_tbl_ptrs[i] = jpeg_alloc_huff_table(Common());
    }
    progress_.progress_monitor = OnProgress;
    jpeg_.progress = &progress_;
  }

  ~Impl() { jpeg_destroy_decompress(&jpeg_); }

  Outcome Decode(const Request& request, const Target& target, void* out) {
    Outcome outcome = Outcome::kLeft;
    try {
      outcome = Guarded(request, target, out);
    } catch (const std::bad_alloc&) {
      // Left like a damaged picture; the batch goes on.
    }
    jpeg_abort_decompress(&jpeg_);
    if (ticket_ > 0) Coefficients().Free(ticket_);
    ticket_ = 0;
    const size_t row_bytes = static_cast<size_t>(target.size) * 3 * PixelBytes(target.type);
    if (outcome != Outcome::kDone) {
      std::memset(out, 0, row_bytes * target.size);
    } else if (in_scratch_) {
      Finish(request, target, static_cast<uint8_t*>(out));
    }
    return outcome;
  }

 private:
  j_common_ptr Common() { return reinterpret_cast<j_common_ptr>(&jpeg_); }

  // libjpeg keeps tables for the next picture, which a damaged one without its own would be decoded with. Emptied, they
  // make it fail: no code is valid in an empty table of codes, and Prepare looks for steps of zero.
  void EmptyTables() {
    for (int i = 0; i < NUM_QUANT_TBLS; ++i) std::memset(jpeg_.quant_tbl_ptrs[i]->quantval, 0, sizeof(UINT16) * DCTSIZE2);
    for (int i = 0; i < NUM_HUFF_TBLS; ++i) {
      for (JHUFF_TBL* table : {jpeg_.dc_huff_tbl_ptrs[i], jpeg_.ac_huff_tbl_ptrs[i]}) {
        std::memset(table->bits, 0, sizeof table->bits);
        std::memset(table->huffval, 0, sizeof table->huffval);
      }
    }
  }

  // What libjpeg jumps back into: no object with a destructor may live in what it jumps over, so the vectors that the
  // steps use are members.
  Outcome Guarded(const Request& request, const Target& target, void* out) {
    if (setjmp(trap_.back)) return Outcome::kLeft;
    EmptyTables();
    Outcome outcome = Open(request, target);
    if (outcome != Outcome::kDone) return outcome;
    Prepare(target);
    Stream(target, static_cast<uint8_t*>(out));
    return outcome;
  }

  // Reads the header and works out which stored rows and columns are wanted, and at which scale.
  Outcome Open(const Request& request, const Target& target) {
    // The parameter is not const in older versions of the library, which do not write to it either.
    jpeg_mem_src(&jpeg_, const_cast<unsigned char*>(request.data), static_cast<unsigned long>(request.size));
    if (jpeg_read_header(&jpeg_, TRUE) != JPEG_HEADER_OK) return Outcome::kLeft;
    const J_COLOR_SPACE colors = jpeg_.jpeg_color_space;
    if (jpeg_.data_precision != 8 || jpeg_.arith_code ||
        (colors != JCS_GRAYSCALE && colors != JCS_YCbCr && colors != JCS_RGB)) {
      return Outcome::kLeft;
    }
    const int height = static_cast<int>(jpeg_.image_height), width = static_cast<int>(jpeg_.image_width);
    if (target.max_pixels > 0 && static_cast<int64_t>(height) * width > target.max_pixels) return Outcome::kLeft;
    turn_ = Turn(request.orientation, request.flip);
    const Window& window = request.window;
    rows_ = {window.y, window.height};
    columns_ = {window.x, window.width};
    if (turn_.transposed) std::swap(rows_, columns_);
    if (!IsWithin(rows_, height) || !IsWithin(columns_, width)) return Outcome::kOutsideWindow;
    // The window is chosen in the picture as displayed, that is before the flip.
    const Turn shown(request.orientation, false);
    rows_ = Reversed(rows_, height, shown.rows_reversed);
    columns_ = Reversed(columns_, width, shown.columns_reversed);
    scale_ = 1;
    while (scale_ < 8 && std::min(rows_.length, columns_.length) / (scale_ * 2) >= target.size) scale_ *= 2;
    in_scratch_ = turn_.transposed || request.num_steps > 0;
    return Outcome::kDone;
  }

  // Starts the decoder at the window's columns, and makes the tables of the resize.
  void Prepare(const Target& target) {
    if (jpeg_has_multiple_scans(&jpeg_)) {
      int64_t bytes = 0;
      for (int c = 0; c < jpeg_.num_components; ++c) {
        const jpeg_component_info& component = jpeg_.comp_info[c];
        bytes += static_cast<int64_t>(component.width_in_blocks) * component.height_in_blocks * sizeof(JBLOCK);
      }
      if (bytes > kMaxCoefficients) longjmp(trap_.back, 1);
      Coefficients().Take(bytes);
      ticket_ = bytes;
    }
    jpeg_.scale_num = 1;
    jpeg_.scale_denom = scale_;
    jpeg_.out_color_space = JCS_RGB;
    jpeg_.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&jpeg_);
    for (int c = 0; c < jpeg_.num_components; ++c) {
      const JQUANT_TBL* table = jpeg_.comp_info[c].quant_table;
      if (table == nullptr || table->quantval[0] == 0) longjmp(trap_.back, 1);
    }

    const int size = target.size;
    row_taps_.Make(size, rows_, scale_);
    column_taps_.Make(size, columns_, scale_);
    // One column more on either side, as the smoothing of the colours looks that far.
    const int left = std::max(column_taps_.first - 1, 0);
    const int right = std::min(column_taps_.last + 2, static_cast<int>(jpeg_.output_width));
    JDIMENSION start = left, width = right - left;
    jpeg_crop_scanline(&jpeg_, &start, &width);
    const int shift = column_taps_.first - static_cast<int>(start);
    offsets_.resize(size);
    weights_.resize(8 * static_cast<size_t>(size));
    for (int i = 0; i < size; ++i) {
      const int upper = column_taps_.upper[i], lower = column_taps_.lower[i];
      const int weight = upper == lower ? 0 : static_cast<int>(std::lrint(column_taps_.part[i] * kWeightOne));
      const int at = turn_.columns_reversed ? size - 1 - i : i;
      offsets_[at] = 3 * (shift + upper);
      for (int k = 0; k < 4; ++k) {
        weights_[8 * at + 2 * k] = static_cast<int16_t>(kWeightOne - weight);
        weights_[8 * at + 2 * k + 1] = static_cast<int16_t>(weight);
      }
    }
    stride_ = static_cast<size_t>(width) * 3 + kRowPadBytes;
    pixels_.resize(stride_ * kMaxRows);
    line_floats_ = static_cast<size_t>(size) * 3;
    lines_.resize(2 * (line_floats_ + kLinePadFloats));
    if (in_scratch_) scratch_.resize(line_floats_ * size);
    // The offsets of a whole row, so that the last step is the same for all its values.
    offset_row_.resize(line_floats_);
    for (size_t i = 0; i < line_floats_; ++i) offset_row_[i] = in_scratch_ ? 0.0f : target.offset[i % 3];
  }

  float* Line(int row) { return lines_.data() + (row & 1) * (line_floats_ + kLinePadFloats); }

  // Decodes row by row; resizes each across when it comes, and blends two of them as soon as both are there.
  void Stream(const Target& target, uint8_t* out) {
    const int size = target.size, first = row_taps_.first;
    const PixelType type = in_scratch_ ? PixelType::kFloat : target.type;
    const size_t row_bytes = line_floats_ * PixelBytes(type);
    const float unit = (in_scratch_ ? 1.0f : target.scale) / kWeightOne;
    uint8_t* image = in_scratch_ ? reinterpret_cast<uint8_t*>(scratch_.data()) : out;
    int row = row_taps_.upper[0];
    const int end = row_taps_.lower[size - 1] + 1;
    if (first + row > 0) jpeg_skip_scanlines(&jpeg_, first + row);
    JSAMPROW pointers[kMaxRows];
    for (int i = 0; i < kMaxRows; ++i) pointers[i] = pixels_.data() + stride_ * i;
    for (int next = 0; row < end;) {
      const int got = static_cast<int>(jpeg_read_scanlines(&jpeg_, pointers, std::min(kMaxRows, end - row)));
      if (got < 1) longjmp(trap_.back, 1);
      for (int i = 0; i < got; ++i, ++row) {
        // While shrinking by more than two, some rows lie between the taps.
        if (row < row_taps_.upper[next]) continue;
        kernels_.across(pointers[i], offsets_.data(), weights_.data(), size, Line(row));
        for (; next < size && row_taps_.lower[next] == row; ++next) {
          const float part = row_taps_.part[next] * unit;
          const int at = turn_.rows_reversed ? size - 1 - next : next;
          Blend(type, Line(row_taps_.upper[next]), Line(row), unit - part, part, image + row_bytes * at);
        }
      }
    }
  }

  void Blend(PixelType type, const float* upper, const float* lower, float a, float b, void* out) {
    const int n = static_cast<int>(line_floats_);
    switch (type) {
      case PixelType::kFloat: kernels_.blend_float(upper, lower, a, b, offset_row_.data(), n, out); break;
      case PixelType::kUint8: kernels_.blend_uint8(upper, lower, a, b, offset_row_.data(), n, out); break;
      case PixelType::kBfloat16: kernels_.blend_bfloat16(upper, lower, a, b, offset_row_.data(), n, out); break;
    }
  }

  // Distorts the colours, transposes, scales: what needs the image as a whole.
  void Finish(const Request& request, const Target& target, uint8_t* out) {
    const int size = target.size;
    if (request.num_steps > 0) {
      kernels_.distort(scratch_.data(), static_cast<int64_t>(size) * size, request.steps, request.num_steps);
    }
    for (size_t i = 0; i < line_floats_; ++i) offset_row_[i] = target.offset[i % 3];
    const size_t row_bytes = line_floats_ * PixelBytes(target.type);
    if (!turn_.transposed) {
      for (int y = 0; y < size; ++y) {
        const float* line = scratch_.data() + line_floats_ * y;
        Blend(target.type, line, line, target.scale, 0.0f, out + row_bytes * y);
      }
      return;
    }
    block_.resize(line_floats_ * kBlock);
    for (int y = 0; y < size; y += kBlock) {
      const int count = std::min(kBlock, size - y);
      for (int x = 0; x < size; ++x) {
        const float* from = scratch_.data() + line_floats_ * x + 3 * y;
        for (int i = 0; i < count; ++i) std::memcpy(block_.data() + line_floats_ * i + 3 * x, from + 3 * i, 12);
      }
      for (int i = 0; i < count; ++i) {
        const float* line = block_.data() + line_floats_ * i;
        Blend(target.type, line, line, target.scale, 0.0f, out + row_bytes * (y + i));
      }
    }
  }

  const Kernels& kernels_;
  jpeg_decompress_struct jpeg_ = {};
  jpeg_progress_mgr progress_ = {};
  ErrorTrap trap_ = {};
  int64_t ticket_ = 0;
  Turn turn_{1, false};
  Stretch rows_ = {}, columns_ = {};
  int scale_ = 1;
  bool in_scratch_ = false;
  size_t stride_ = 0, line_floats_ = 0;
  Taps row_taps_, column_taps_;
  std::vector<int32_t> offsets_;
  std::vector<int16_t> weights_;
  std::vector<uint8_t> pixels_;
  std::vector<float> lines_, offset_row_, scratch_, block_;
};

Decoder::Decoder(const Kernels& kernels) : impl_(std::make_unique<Impl>(kernels)) {}
Decoder::~Decoder() = default;

Outcome Decoder::Decode(const Request& request, const Target& target, void* out) {
  return impl_->Decode(request, target, out);
}

}  // namespace slimexp
