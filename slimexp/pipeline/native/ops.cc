// The TensorFlow ops: the headers of a batch of JPEGs, and the batch's finished images.
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

#include "decoder.h"
#include "header.h"
#include "pool.h"

namespace slimexp {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::DataType;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Joins its arguments; streams, so that nothing but the framework's stable parts is linked.
template <typename... Args>
std::string Text(const Args&... args) {
  std::ostringstream text;
  (text << ... << args);
  return text.str();
}

template <typename... Args>
absl::Status InvalidArgument(const Args&... args) {
  return absl::InvalidArgumentError(Text(args...));
}

REGISTER_OP("SlimexpJpegHeader")
    .Input("contents: string")
    .Attr("exif: bool = true")
    .Output("sizes: int32")
    .Output("orientations: int32")
    .SetShapeFn([](InferenceContext* c) -> absl::Status {
      ShapeHandle contents;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &contents));
      c->set_output(0, c->Matrix(c->Dim(contents, 0), 2));
      c->set_output(1, contents);
      return absl::OkStatus();
    });

REGISTER_OP("SlimexpDecodeJpegWindow")
    .Input("contents: string")
    .Input("windows: int32")
    .Input("orientations: int32")
    .Input("flips: bool")
    .Input("colors: float")
    .Input("scale: float")
    .Input("offset: float")
    .Attr("size: int >= 1")
    .Attr("threads: int >= 1")
    .Attr("pool: string")
    .Attr("color_orders: list(string) = []")
    .Attr("max_pixels: int >= 0 = 0")
    .Attr("dtype: {float, uint8, bfloat16} = DT_FLOAT")
    .Output("images: dtype")
    .Output("done: bool")
    .SetShapeFn([](InferenceContext* c) -> absl::Status {
      ShapeHandle shape;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &shape));
      DimensionHandle n = c->Dim(shape, 0);
      DimensionHandle side;
      for (const int input : {2, 3}) {
        TF_RETURN_IF_ERROR(c->WithRank(c->input(input), 1, &shape));
        TF_RETURN_IF_ERROR(c->Merge(n, c->Dim(shape, 0), &n));
      }
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 2, &shape));
      TF_RETURN_IF_ERROR(c->Merge(n, c->Dim(shape, 0), &n));
      TF_RETURN_IF_ERROR(c->WithValue(c->Dim(shape, 1), 4, &side));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(4), 2, &shape));
      TF_RETURN_IF_ERROR(c->WithValue(c->Dim(shape, 1), 5, &side));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(5), 0, &shape));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(6), 1, &shape));
      TF_RETURN_IF_ERROR(c->WithValue(c->Dim(shape, 0), 3, &side));
      int64_t size;
      TF_RETURN_IF_ERROR(c->GetAttr("size", &size));
      c->set_output(0, c->MakeShape({n, size, size, 3}));
      c->set_output(1, c->Vector(n));
      return absl::OkStatus();
    });

class JpegHeaderOp : public OpKernel {
 public:
  explicit JpegHeaderOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("exif", &exif_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& contents = context->input(0);
    OP_REQUIRES(context, contents.dims() == 1,
                InvalidArgument("contents must be a vector, and is of shape ", contents.shape().DebugString()));
    const int64_t count = contents.NumElements();
    Tensor *sizes, *orientations;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({count, 2}), &sizes));
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({count}), &orientations));
    for (int64_t i = 0; i < count; ++i) {
      const tstring& data = contents.vec<tstring>()(i);
      Header header;
      const bool is_taken = ReadHeader(reinterpret_cast<const uint8_t*>(data.data()), data.size(), &header);
      const int orientation = is_taken && exif_ ? header.orientation : 1;
      if (orientation >= 5) std::swap(header.height, header.width);
      sizes->matrix<int32_t>()(i, 0) = is_taken ? header.height : 0;
      sizes->matrix<int32_t>()(i, 1) = is_taken ? header.width : 0;
      orientations->vec<int32_t>()(i) = orientation;
    }
  }

 private:
  bool exif_;
};

class DecodeJpegWindowOp : public AsyncOpKernel {
 public:
  explicit DecodeJpegWindowOp(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("size", &size_));
    OP_REQUIRES_OK(context, context->GetAttr("max_pixels", &max_pixels_));
    OP_REQUIRES_OK(context, context->GetAttr("color_orders", &color_orders_));
    for (const std::string& order : color_orders_) {
      OP_REQUIRES(context, order.size() <= kMaxColorSteps && order.find_first_not_of("bshc") == std::string::npos,
                  InvalidArgument("color_orders has '", order, "', and may have up to ", kMaxColorSteps,
                                  " of the letters b, s, h, c: brightness, saturation, hue, contrast"));
    }
    DataType dtype;
    OP_REQUIRES_OK(context, context->GetAttr("dtype", &dtype));
    type_ = dtype == tensorflow::DT_FLOAT   ? PixelType::kFloat
            : dtype == tensorflow::DT_UINT8 ? PixelType::kUint8
                                            : PixelType::kBfloat16;
    std::string name;
    int threads;
    OP_REQUIRES_OK(context, context->GetAttr("pool", &name));
    OP_REQUIRES_OK(context, context->GetAttr("threads", &threads));
    try {
      pool_ = Pool::Get(name, threads);
    } catch (const std::system_error& error) {
      OP_REQUIRES(context, false,
                  absl::ResourceExhaustedError(
                      Text("the system would not start ", threads, " preprocessing threads: ", error.what())));
    }
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    auto call = std::make_shared<Call>();
    call->context = context;
    const Tensor& contents = context->input(0);
    OP_REQUIRES_ASYNC(context, contents.dims() == 1,
                      InvalidArgument("contents must be a vector, and is of shape ", contents.shape().DebugString()),
                      done);
    const int64_t count = contents.NumElements();
    const auto require = [&](const char* name, int input, const TensorShape& shape) {
      if (context->input(input).shape() == shape) return true;
      context->SetStatus(InvalidArgument(name, " must be of shape ", shape.DebugString(), " with ", count,
                                         " contents, and is of shape ", context->input(input).shape().DebugString()));
      return false;
    };
    const Tensor& colors = context->input(4);
    const TensorShape color_shape({colors.dims() > 0 && colors.dim_size(0) == 0 ? 0 : count, 5});
    if (!require("windows", 1, TensorShape({count, 4})) || !require("orientations", 2, TensorShape({count})) ||
        !require("flips", 3, TensorShape({count})) || !require("colors", 4, color_shape) ||
        !require("scale", 5, TensorShape({})) || !require("offset", 6, TensorShape({3}))) {
      done();
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      const int orientation = context->input(2).vec<int32_t>()(i);
      OP_REQUIRES_ASYNC(context, orientation >= 1 && orientation <= 8,
                        InvalidArgument("orientations[", i, "] is ", orientation, ", and must be 1 to 8"), done);
    }
    call->colored = colors.dim_size(0) > 0;
    for (int64_t i = 0; call->colored && i < count; ++i) {
      const float order = colors.matrix<float>()(i, 0);
      OP_REQUIRES_ASYNC(context, order >= 0 && order < color_orders_.size() && order == static_cast<int>(order),
                        InvalidArgument("colors[", i, ", 0] is ", order, ", and must be the number of one of the ",
                                        color_orders_.size(), " color_orders"),
                        done);
    }
    const auto offset = context->input(6).vec<float>();
    call->target = {size_,      type_, context->input(5).scalar<float>()(), {offset(0), offset(1), offset(2)},
                    max_pixels_};
    Tensor *images, *finished;
    OP_REQUIRES_OK_ASYNC(
        context, context->allocate_output(0, TensorShape({count, size_, size_, 3}), &images), done);
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(1, TensorShape({count}), &finished), done);
    call->images = static_cast<uint8_t*>(images->data());
    call->image_bytes = static_cast<int64_t>(size_) * size_ * 3 * PixelBytes(type_);
    call->finished = finished->flat<bool>().data();
    const bool is_submitted = pool_->Submit(
        count, [this, call](Decoder& decoder, int64_t i) { Make(*call, decoder, i); }, [call, done] { done(); });
    OP_REQUIRES_ASYNC(context, is_submitted,
                      absl::FailedPreconditionError(
                          "this process was forked from one that had started the preprocessing threads, which it "
                          "lacks; start it anew (spawn) instead"),
                      done);
  }

 private:
  // One batch in the making.
  struct Call {
    OpKernelContext* context;
    Target target;
    bool colored;
    uint8_t* images;
    int64_t image_bytes;
    bool* finished;
    std::mutex mutex;  // Of the context's status.
  };

  void Make(Call& call, Decoder& decoder, int64_t i) const {
    OpKernelContext* const context = call.context;
    tensorflow::CancellationManager* const cancellation = context->cancellation_manager();
    if (cancellation != nullptr && cancellation->IsCancelled()) {
      Fail(call, absl::CancelledError("the batch is not wanted any more"));
      return;
    }
    const tstring& data = context->input(0).vec<tstring>()(i);
    uint8_t* const image = call.images + call.image_bytes * i;
    // What the header op does not take has no size, so its window means nothing.
    Header header;
    if (!ReadHeader(reinterpret_cast<const uint8_t*>(data.data()), data.size(), &header)) {
      std::memset(image, 0, call.image_bytes);
      call.finished[i] = false;
      return;
    }
    const auto window = context->input(1).matrix<int32_t>();
    Request request;
    request.data = reinterpret_cast<const uint8_t*>(data.data());
    request.size = data.size();
    request.window = {window(i, 0), window(i, 1), window(i, 2), window(i, 3)};
    request.orientation = context->input(2).vec<int32_t>()(i);
    request.flip = context->input(3).vec<bool>()(i);
    request.num_steps = 0;
    if (call.colored) {
      const auto colors = context->input(4).matrix<float>();
      for (const char kind : color_orders_[static_cast<int>(colors(i, 0))]) {
        const int column = kind == 'b' ? 1 : kind == 's' ? 2 : kind == 'h' ? 3 : 4;
        request.steps[request.num_steps++] = {kind, colors(i, column)};
      }
    }
    const Outcome outcome = decoder.Decode(request, call.target, image);
    call.finished[i] = outcome == Outcome::kDone;
    if (outcome == Outcome::kOutsideWindow) {
      Fail(call, InvalidArgument("windows[", i, "] is y=", window(i, 0), ", x=", window(i, 1), ", height=",
                                 window(i, 2), ", width=", window(i, 3), ", which is not within the picture"));
    }
  }

  static void Fail(Call& call, absl::Status status) {
    std::lock_guard<std::mutex> lock(call.mutex);
    if (call.context->status().ok()) call.context->SetStatus(status);
  }

  int size_;
  int64_t max_pixels_;
  PixelType type_;
  std::vector<std::string> color_orders_;
  std::shared_ptr<Pool> pool_;
};

REGISTER_KERNEL_BUILDER(Name("SlimexpJpegHeader").Device(tensorflow::DEVICE_CPU), JpegHeaderOp);
REGISTER_KERNEL_BUILDER(Name("SlimexpDecodeJpegWindow").Device(tensorflow::DEVICE_CPU), DecodeJpegWindowOp);

}  // namespace
}  // namespace slimexp

extern "C" {

// Writes images, cpu_ns, wall_ns, waiting and threads of the pools of that name; returns 0 if there is none.
__attribute__((visibility("default"))) int slimexp_pool_stats(const char* name, int64_t* values) {
  slimexp::PoolStats stats;
  if (!slimexp::Pool::Stats(name, &stats)) return 0;
  values[0] = stats.images;
  values[1] = stats.cpu_ns;
  values[2] = stats.wall_ns;
  values[3] = stats.waiting;
  values[4] = stats.threads;
  return 1;
}

}  // extern "C"
