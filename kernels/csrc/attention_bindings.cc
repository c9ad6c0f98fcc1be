// Attention's part of the Python module: the structs of asynct/attention.h, and the launches.

#include "asynct/attention.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "asynct/launch.h"
#include "asynct/prefill_schedule.h"
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
  py::class_<NormRopeParams>(module, "NormRopeParams")
      .def(py::init([](const DyHTParams& q, const DyHTParams& k, const Parameter& cos_sin) {
             return NormRopeParams{q, k, cos_sin};
           }),
           py::kw_only(), "q"_a, "k"_a, "cos_sin"_a);
  py::class_<RawStep>(module, "RawStep")
      .def(py::init([](const FreshKeyValue& fresh, const NormRopeParams& norm_rope) {
             return RawStep{fresh, norm_rope};
           }),
           py::kw_only(), "fresh"_a, "norm_rope"_a);
}

void BindDecode(py::module_& module) {
  py::class_<DecodeShape>(module, "DecodeShape")
      .def(py::init([](int requests, int heads, int kv_heads, int head_dim, int max_seq_len,
                       int segment_keys) {
             return DecodeShape{requests, heads, kv_heads, head_dim, max_seq_len, segment_keys};
           }),
           py::kw_only(), "requests"_a, "heads"_a, "kv_heads"_a, "head_dim"_a, "max_seq_len"_a,
           "segment_keys"_a);
  module.attr("DECODE_PAGE_KEYS") = kPageKeys;
  module.attr("DECODE_MAX_SEGMENT_KEYS") = kMaxSegmentKeys;
  module.attr("DECODE_MAX_SEGMENTS") = kMaxSegments;
  module.def("decode_workspace_bytes",
             [](const DecodeShape& shape) { return LayOutDecode(shape).bytes; }, "shape"_a);
  module.def(
      "hp1_decode_schedule",
      [](uintptr_t query_start_loc, uintptr_t seq_lens, const DecodeShape& shape,
         uintptr_t workspace, uintptr_t stream) {
        HP1DecodeSchedule(Array<int32_t>(query_start_loc), Array<int32_t>(seq_lens), shape,
                          Output(workspace), Stream(stream));
      },
      py::kw_only(), "query_start_loc"_a, "seq_lens"_a, "shape"_a, "workspace"_a, "stream"_a);
  module.def(
      "hp1_decode_paged",
      [](const AttentionParams& params, const std::optional<RawStep>& raw,
         const DecodeShape& shape, uintptr_t workspace, uintptr_t stream) {
        HP1DecodePaged(params, raw ? &*raw : nullptr, shape, Output(workspace), Stream(stream));
      },
      py::kw_only(), "params"_a, "raw"_a = std::nullopt, "shape"_a, "workspace"_a, "stream"_a);
}

void BindPrefillWgmma(py::module_& module) {
  py::class_<KeyValueRows>(module, "KeyValueRows")
      .def(py::init([](const HeadsView& key, const HeadsView& value, int64_t rows,
                       int request_rows) { return KeyValueRows{key, value, rows, request_rows}; }),
           py::kw_only(), "key"_a, "value"_a, "rows"_a, "request_rows"_a);
  module.attr("PREFILL_WGMMA_MAX_REQUESTS") = prefill_wgmma::kMaxRequests;
  module.def("prefill_wgmma_workspace_bytes", &HP1PrefillWgmmaWorkspace, py::kw_only(), "tokens"_a,
             "requests"_a, "group"_a);
  module.def(
      "hp1_prefill_wgmma",
      [](const AttentionParams& params, const std::optional<KeyValueRows>& rows, int64_t tokens,
         uintptr_t workspace, uintptr_t stream) {
        if (rows) {
          HP1PrefillWgmma(params, *rows, tokens, Output(workspace), Stream(stream));
        } else {
          HP1PrefillWgmma(params, tokens, Output(workspace), Stream(stream));
        }
      },
      py::kw_only(), "params"_a, "rows"_a = std::nullopt, "tokens"_a, "workspace"_a, "stream"_a);
}

void BindPrefillMma(py::module_& module) {
  module.def(
      "hp1_prefill_mma",
      [](const AttentionParams& params, uintptr_t stream) {
        HP1PrefillMma(params, Stream(stream));
      },
      py::kw_only(), "params"_a, "stream"_a);
}

void BindCache(py::module_& module) {
  module.def(
      "reshape_and_cache",
      [](DataType dtype, const FreshKeyValue& fresh, const PagedCache& cache, int64_t tokens,
         int kv_heads, int head_dim, uintptr_t stream) {
        ReshapeAndCache({dtype, fresh, cache, tokens, kv_heads, head_dim}, Stream(stream));
      },
      py::kw_only(), "dtype"_a, "fresh"_a, "cache"_a, "tokens"_a, "kv_heads"_a, "head_dim"_a,
      "stream"_a);
  module.def(
      "qk_norm_rope_cache",
      [](DataType dtype, const FreshKeyValue& fresh, const PagedCache& cache, int64_t slots,
         int kv_heads, int head_dim, const HeadsView& query, int heads, uintptr_t positions,
         int64_t tokens, const NormRopeParams& norm_rope, uintptr_t query_out, uintptr_t key_out,
         uintptr_t stream) {
        QkNormRopeCache({{dtype, fresh, cache, slots, kv_heads, head_dim}, query, heads,
                         Array<int64_t>(positions), tokens, norm_rope, Output(query_out),
                         Output(key_out)},
                        Stream(stream));
      },
      py::kw_only(), "dtype"_a, "fresh"_a, "cache"_a, "slots"_a, "kv_heads"_a, "head_dim"_a,
      "query"_a, "heads"_a, "positions"_a, "tokens"_a, "norm_rope"_a, "query_out"_a, "key_out"_a,
      "stream"_a);
  module.def(
      "gather_pages",
      [](const AttentionParams& params, uintptr_t key, uintptr_t value, int64_t request_rows,
         int row_multiple, uintptr_t stream) {
        GatherPages(params, {Output(key), Output(value), request_rows, row_multiple},
                    Stream(stream));
      },
      py::kw_only(), "params"_a, "key"_a, "value"_a, "request_rows"_a, "row_multiple"_a,
      "stream"_a);
}

}  // namespace

void BindAttention(py::module_& module) {
  BindStructs(module);
  BindPrefillWgmma(module);
  BindDecode(module);
  BindPrefillMma(module);
  BindCache(module);
}

}  // namespace asynct
