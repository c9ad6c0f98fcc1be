// The products with an epilogue, of the Python module asynct_kernels._C.

#include "asynct/launch.h"
#include "bindings.h"

namespace asynct {

namespace py = pybind11;
using py::literals::operator""_a;

void BindGemm(py::module_& module) {
  module.def(
      "linear_relu_and_mul",
      [](DataType dtype, uintptr_t x, uintptr_t weight, uintptr_t y, int rows, int channels,
         int depth, uintptr_t stream) {
        LinearReluAndMul({dtype, Input(x), Input(weight), Output(y), rows, channels, depth},
                         Stream(stream));
      },
      py::kw_only(), "dtype"_a, "x"_a, "weight"_a, "y"_a, "rows"_a, "channels"_a, "depth"_a,
      "stream"_a);
  module.def(
      "linear_add_uclip",
      [](DataType dtype, uintptr_t x, uintptr_t weight, uintptr_t residual, uintptr_t y,
         uintptr_t new_residual, const DyHTParams& post, const DyHTParams& mlp, int rows,
         int channels, int depth, uintptr_t stream) {
        LinearAddUclip({dtype, Input(x), Input(weight), Input(residual), Output(y),
                        Output(new_residual), post, mlp, rows, channels, depth},
                       Stream(stream));
      },
      py::kw_only(), "dtype"_a, "x"_a, "weight"_a, "residual"_a, "y"_a, "new_residual"_a, "post"_a,
      "mlp"_a, "rows"_a, "channels"_a, "depth"_a, "stream"_a);
}

}  // namespace asynct
