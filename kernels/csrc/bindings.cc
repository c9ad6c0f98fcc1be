// The Python module asynct_kernels._C: launches, given addresses as integers. It checks nothing;
// asynct_kernels/checks.py has done so before.

#include "bindings.h"

#include "asynct/launch.h"

namespace asynct {
namespace {

namespace py = pybind11;
using py::literals::operator""_a;

void BindStructs(py::module_& module) {
  py::enum_<DataType>(module, "DataType")
      .value("float32", DataType::kFloat32)
      .value("float16", DataType::kFloat16)
      .value("bfloat16", DataType::kBFloat16)
      .value("float8_e4m3", DataType::kFloat8E4M3);
  py::class_<RowsView>(module, "RowsView")
      .def(py::init([](uintptr_t data, int64_t row_stride) {
             return RowsView{Input(data), row_stride};
           }),
           "data"_a, "row_stride"_a);
  py::class_<HeadsView>(module, "HeadsView")
      .def(py::init([](uintptr_t data, int64_t token_stride, int64_t head_stride) {
             return HeadsView{Input(data), token_stride, head_stride};
           }),
           "data"_a, "token_stride"_a, "head_stride"_a);
  py::class_<Parameter>(module, "Parameter")
      .def(py::init([](uintptr_t data, DataType dtype, int stride) {
             return Parameter{Input(data), dtype, stride};
           }),
           "data"_a, "dtype"_a, "stride"_a);
  py::class_<DyHTParams>(module, "DyHTParams")
      .def(py::init([](const Parameter& alpha, const Parameter& gamma, float clip_min,
                       float clip_max) {
             return DyHTParams{alpha, gamma, clip_min, clip_max};
           }),
           "alpha"_a, "gamma"_a, "clip_min"_a, "clip_max"_a);
  py::class_<HeadsUclipNormParams>(module, "HeadsUclipNormParams")
      .def(py::init([](const HeadsView& x, uintptr_t y, const DyHTParams& dyht, int heads) {
             return HeadsUclipNormParams{x, Output(y), dyht, heads};
           }),
           py::kw_only(), "x"_a, "y"_a, "dyht"_a, "heads"_a);
}

void BindLaunches(py::module_& module) {
  module.def(
      "uclip_norm",
      [](DataType dtype, const RowsView& x, uintptr_t y, const DyHTParams& dyht, int64_t rows,
         int channels, uintptr_t stream) {
        UclipNorm({dtype, x, Output(y), dyht, rows, channels}, Stream(stream));
      },
      py::kw_only(), "dtype"_a, "x"_a, "y"_a, "dyht"_a, "rows"_a, "channels"_a, "stream"_a);
  module.def(
      "fused_add_uclip_norm",
      [](DataType dtype, const RowsView& x, const RowsView& residual, uintptr_t y,
         uintptr_t new_residual, const DyHTParams& dyht, int64_t rows, int channels,
         uintptr_t stream) {
        FusedAddUclipNorm(
            {dtype, x, residual, Output(y), Output(new_residual), dyht, rows, channels},
            Stream(stream));
      },
      py::kw_only(), "dtype"_a, "x"_a, "residual"_a, "y"_a, "new_residual"_a, "dyht"_a, "rows"_a,
      "channels"_a, "stream"_a);
  module.def(
      "qk_uclip_norm",
      [](DataType dtype, const HeadsUclipNormParams& q, const HeadsUclipNormParams& k,
         int64_t tokens, int head_size, uintptr_t stream) {
        QkUclipNorm({dtype, q, k, tokens, head_size}, Stream(stream));
      },
      py::kw_only(), "dtype"_a, "q"_a, "k"_a, "tokens"_a, "head_size"_a, "stream"_a);
  module.def(
      "post_attn_pre_mlp_uclip_out",
      [](DataType dtype, const RowsView& x, const RowsView& residual, uintptr_t y,
         uintptr_t new_residual, const DyHTParams& post, const DyHTParams& mlp, int64_t rows,
         int channels, uintptr_t stream) {
        PostAttnPreMlpUclipOut(
            {dtype, x, residual, Output(y), Output(new_residual), post, mlp, rows, channels},
            Stream(stream));
      },
      py::kw_only(), "dtype"_a, "x"_a, "residual"_a, "y"_a, "new_residual"_a, "post"_a, "mlp"_a,
      "rows"_a, "channels"_a, "stream"_a);
  module.def(
      "relu_and_mul",
      [](DataType dtype, const RowsView& gate_up, uintptr_t y, int64_t rows, int channels,
         uintptr_t stream) {
        ReluAndMul({dtype, gate_up, Output(y), rows, channels}, Stream(stream));
      },
      py::kw_only(), "dtype"_a, "gate_up"_a, "y"_a, "rows"_a, "channels"_a, "stream"_a);
}

PYBIND11_MODULE(_C, module) {
  module.doc() = "CUDA launches of AsyncT's kernels.";
  BindStructs(module);
  BindLaunches(module);
  BindAttention(module);
  BindGemm(module);
}

}  // namespace
}  // namespace asynct
