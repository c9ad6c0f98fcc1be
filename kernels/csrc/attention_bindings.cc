// Attention's part of the Python module: the structs of asynct/attention.h, and the launches.

#include "asynct/attention.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <vector>

#include "asynct/launch.h"
#include "bindings.h"

namespace asynct {
namespace {

namespace py = pybind11;
using py::literals::operator""_a;

template <typename T>
const T* Array(uintptr_t address) {
  return reinterpret_cast<const T*>(address);
}

GateParams MakeGate(uintptr_t sigma, uintptr_t alpha, uintptr_t gamma, float scale,
                    const std::vector<float>& weights, bool relu_pre, float clip_min,
                    float clip_max) {
  if (weights.empty() || weights.size() > kMaxWindow) {
    throw py::value_error("weights: must have 1 to 8 values");
  }
  GateParams gate{Array<float>(sigma), Array<float>(alpha), Array<float>(gamma),
                  scale,               static_cast<int>(weights.size()),
                  {},                  relu_pre,            clip_min,
                  clip_max};
  std::copy(weights.begin(), weights.end(), gate.weights);
  return gate;
}

void BindStructs(py::module_& module) {
  py::class_<GateParams>(module, "GateParams")
      .def(py::init(&MakeGate), py::kw_only(), "sigma"_a, "alpha"_a, "gamma"_a, "scale"_a,
           "weights"_a, "relu_pre"_a, "clip_min"_a, "clip_max"_a);
  py::class_<CacheView>(module, "CacheView")
      .def(py::init([](uintptr_t data, int64_t block_stride, int64_t slot_stride,
                       int64_t head_stride, uintptr_t scale, int scale_stride) {
             return CacheView{Output(data), block_stride,        slot_stride,
                              head_stride,  Array<float>(scale), scale_stride};
           }),
           py::kw_only(), "data"_a, "block_stride"_a, "slot_stride"_a, "head_stride"_a, "scale"_a,
           "scale_stride"_a);
  py::class_<PagedCache>(module, "PagedCache")
      .def(py::init([](DataType dtype, const CacheView& key, const CacheView& value, int block_size,
                       int64_t num_blocks) {
             return PagedCache{dtype, key, value, block_size, num_blocks};
           }),
           py::kw_only(), "dtype"_a, "key"_a, "value"_a, "block_size"_a, "num_blocks"_a);
  py::class_<AttentionParams>(module, "AttentionParams")
      .def(py::init([](DataType dtype, const HeadsView& query, uintptr_t out,
                       int64_t out_token_stride, int64_t out_head_stride, const PagedCache& cache,
                       uintptr_t block_table, int64_t table_stride, uintptr_t query_start_loc,
                       uintptr_t seq_lens, const GateParams& gate, int requests, int heads,
                       int kv_heads, int head_dim, int max_query_len, int max_seq_len) {
             return AttentionParams{dtype,
                                    query,
                                    Output(out),
                                    out_token_stride,
                                    out_head_stride,
                                    cache,
                                    Array<int32_t>(block_table),
                                    table_stride,
                                    Array<int32_t>(query_start_loc),
                                    Array<int32_t>(seq_lens),
                                    gate,
                                    requests,
                                    heads,
                                    kv_heads,
                                    head_dim,
                                    max_query_len,
                                    max_seq_len};
           }),
           py::kw_only(), "dtype"_a, "query"_a, "out"_a, "out_token_stride"_a, "out_head_stride"_a,
           "cache"_a, "block_table"_a, "table_stride"_a, "query_start_loc"_a, "seq_lens"_a,
           "gate"_a, "requests"_a, "heads"_a, "kv_heads"_a, "head_dim"_a, "max_query_len"_a,
           "max_seq_len"_a);
  py::class_<FreshKeyValue>(module, "FreshKeyValue")
      .def(py::init([](const HeadsView& key, const HeadsView& value, uintptr_t slot_mapping) {
             return FreshKeyValue{key, value, Array<int64_t>(slot_mapping)};
           }),
           py::kw_only(), "key"_a, "value"_a, "slot_mapping"_a);
}

}  // namespace

void BindAttention(py::module_& module) { BindStructs(module); }

}  // namespace asynct
