// A step of one's own for `preprocessing.steps`, as a C++ op: fades an image, as `fade` in steps.py does.
//
//     ./scripts/build_op scripts/examples/fade_op.cc -o fade.so
//     ./scripts/run 'preprocessing.steps=[{library: fade.so, op: fade, most: 0.5, num_draws: 1}]'
//
// An op is a declaration (REGISTER_OP: inputs, attributes, outputs, and the outputs' shapes) and a kernel (a class with
// `Compute`). Inputs named `image` and `draws` are what a step gets; attributes are set by the keys of the same name.

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

REGISTER_OP("Fade")
    .Input("image: float")
    .Input("draws: float")
    .Attr("most: float = 1.0")
    .Output("faded: float")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->input(0));
      return absl::OkStatus();
    });

class FadeOp : public tensorflow::OpKernel {
 public:
  explicit FadeOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("most", &most_));
    OP_REQUIRES(context, most_ >= 0 && most_ <= 1,
                tensorflow::errors::InvalidArgument("most=", most_, " must lie in 0..1."));
  }

  // Called by several threads at once, so it must not change what belongs to the object.
  void Compute(tensorflow::OpKernelContext* context) override {
    const tensorflow::Tensor& image = context->input(0);
    const tensorflow::Tensor& draws = context->input(1);
    OP_REQUIRES(context, image.dims() == 3 && image.dim_size(2) == 3,
                tensorflow::errors::InvalidArgument("image must be [height, width, 3], not ",
                                                    image.shape().DebugString()));
    OP_REQUIRES(context, draws.NumElements() >= 1, tensorflow::errors::InvalidArgument("draws must hold a number."));
    tensorflow::Tensor* faded = nullptr;
    // Into the memory of the image where nobody else needs it.
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, image.shape(), &faded));
    const float share = most_ * draws.flat<float>()(0);
    const float* from = image.flat<float>().data();
    float* to = faded->flat<float>().data();
    const tensorflow::int64 count = image.NumElements();
    for (tensorflow::int64 i = 0; i < count; i += 3) {
      const float red = from[i], green = from[i + 1], blue = from[i + 2];
      const float grey = 0.299f * red + 0.587f * green + 0.114f * blue;
      to[i] = red + share * (grey - red);
      to[i + 1] = green + share * (grey - green);
      to[i + 2] = blue + share * (grey - blue);
    }
  }

 private:
  float most_;
};

REGISTER_KERNEL_BUILDER(Name("Fade").Device(tensorflow::DEVICE_CPU), FadeOp);

}  // namespace
