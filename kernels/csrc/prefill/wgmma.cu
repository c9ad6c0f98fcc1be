// Prefill by wgmma, for Hopper: the host's side.
#include <algorithm>

#include "asynct/launch.h"
#include "asynct/launch_rows.cuh"
#include "wgmma_launch.h"

namespace asynct {
namespace prefill_wgmma {
namespace {

constexpr const char* kName = "hp1_prefill_wgmma";

// A tensor map of 16-bit elements in boxes of 128-byte swizzled lines. The innermost dimension is
// adjacent; `strides` are those of the others, in elements.
template <int kRank>
CUtensorMap EncodeMap(const void* data, const int64_t (&sizes)[kRank],
                      const int64_t (&strides)[kRank - 1], const int (&box)[kRank]) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    Check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                           cudaEnableDefault, &found),
          kName);
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  cuuint64_t map_sizes[kRank];
  cuuint64_t map_strides[kRank - 1];
  cuuint32_t map_box[kRank];
  cuuint32_t steps[kRank];
  for (int i = 0; i < kRank; ++i) {
    map_sizes[i] = sizes[i];
    map_box[i] = box[i];
    steps[i] = 1;
    // Of a dimension of size 1 the stride may be anything, and is of no use.
    if (i > 0) map_strides[i - 1] = sizes[i] > 1 ? strides[i - 1] * 2 : 16;
  }
  CUtensorMap map;
  if (encode == nullptr ||
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, kRank, const_cast<void*>(data), map_sizes,
             map_strides, map_box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
    throw std::runtime_error("hp1_prefill_wgmma: the driver refused a tensor map");
  }
  return map;
}

KeyValueSource MakeSource(const CacheView& view) {
  return {.data = view.data,
          .block_stride = view.block_stride,
          .slot_stride = view.slot_stride,
          .head_stride = view.head_stride,
          .scale = view.scale,
          .scale_stride = view.scale_stride};
}

KeyValueSource MakeSource(const HeadsView& view, const CacheView& scales) {
  return {.data = view.data,
          .slot_stride = view.token_stride,
          .head_stride = view.head_stride,
          .scale = scales.scale,
          .scale_stride = scales.scale_stride};
}

// The map of contiguous rows, in boxes of half a tile of which a thread has `run` keys. It has
// dimensions (element, e, q, j, head): line 8 j + 2 q + e of a tile holds key run * q + 2 j + e. A
// box starts at any row, by the coordinate of e.
CUtensorMap EncodeRows(const HeadsView& view, int64_t rows, const AttentionParams& attention,
                       int run) {
  const int64_t row = view.token_stride;
  return EncodeMap<5>(view.data, {attention.head_dim, rows, 4, run / 2, attention.kv_heads},
                      {row, run * row, 2 * row, view.head_stride},
                      {kLine, 2, 4, run / 2 / kFeedingWarps, 1});
}

int RunOf(int head_dim, bool fast_gate) {
  int run = 0;
  WithInstance(head_dim, fast_gate, [&]<int kDim, bool kFastGate>(Instance<kDim, kFastGate>) {
    run = Traits<__half, kDim, kFastGate>::kRun;
  });
  return run;
}

// Two query heads of a KV head share a work where there are as many, one a warpgroup.
constexpr int WorkHeads(int group) { return group % kConsumers == 0 ? kConsumers : 1; }

constexpr int RowBlockOf(int group) { return kConsumers / WorkHeads(group) * kWarpgroupRows; }

bool HasFastGate(const AttentionParams& attention) {
  return is_fast_gate(attention.gate) && attention.cache.key.scale == nullptr;
}

// What pages and rows have in common.
void Launch(const AttentionParams& attention, Params& params, int64_t tokens, void* workspace,
            cudaStream_t stream) {
  params.query = EncodeMap<3>(attention.query.data,
                              {attention.head_dim, attention.heads, tokens},
                              {attention.query.head_stride, attention.query.token_stride},
                              {kLine, 1, kWarpgroupRows});
  params.out = attention.out;
  params.out_token_stride = attention.out_token_stride;
  params.out_head_stride = attention.out_head_stride;
  params.gate = attention.gate;
  params.group = attention.heads / attention.kv_heads;
  params.work_heads = WorkHeads(params.group);
  params.head_works = attention.heads / params.work_heads;
  params.schedule = static_cast<ScheduleHeader*>(workspace);
  const int row_block = RowBlockOf(params.group);
  LaunchSchedule(attention, row_block, params.schedule, stream);

  int device = 0;
  int multiprocessors = 0;
  Check(cudaGetDevice(&device), kName);
  Check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), kName);
  const int64_t works =
      MostRowBlocks(tokens, attention.requests, row_block) * params.head_works;
  const auto launch = attention.dtype == DataType::kFloat16 ? LaunchAttention<__half>
                                                            : LaunchAttention<__nv_bfloat16>;
  launch(params, attention.head_dim, HasFastGate(attention),
         std::min<int64_t>(multiprocessors, works), stream);
}

}  // namespace
}  // namespace prefill_wgmma

using namespace prefill_wgmma;

int64_t HP1PrefillWgmmaWorkspace(int64_t tokens, int requests, int group) {
  return WorkspaceBytes(tokens, requests, RowBlockOf(group));
}

void HP1PrefillWgmma(const AttentionParams& params, int64_t tokens, void* workspace,
                     cudaStream_t stream) {
  const PagedCache& cache = params.cache;
  Params launch{};
  launch.key = MakeSource(cache.key);
  launch.value = MakeSource(cache.value);
  launch.float8 = cache.dtype == DataType::kFloat8E4M3;
  launch.block_table = params.block_table;
  launch.table_stride = params.table_stride;
  launch.block_size = cache.block_size;
  Launch(params, launch, tokens, workspace, stream);
}

void HP1PrefillWgmma(const AttentionParams& params, const KeyValueRows& rows, int64_t tokens,
                     void* workspace, cudaStream_t stream) {
  Params launch{};
  launch.key = MakeSource(rows.key, params.cache.key);
  launch.value = MakeSource(rows.value, params.cache.value);
  launch.request_rows = rows.request_rows;
  launch.mapped = rows.rows > 0;  // there is no map of nothing
  if (launch.mapped) {
    const int run = RunOf(params.head_dim, HasFastGate(params));
    launch.key.map = EncodeRows(rows.key, rows.rows, params, run);
    launch.value.map = EncodeRows(rows.value, rows.rows, params, run);
  }
  Launch(params, launch, tokens, workspace, stream);
}

}  // namespace asynct
