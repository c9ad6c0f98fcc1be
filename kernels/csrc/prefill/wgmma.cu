// Prefill by wgmma, for Hopper: the host's side.
#include <algorithm>
#include <limits>
#include <numeric>

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

// Extents of K and V.
struct KeyValueShape {
  int64_t blocks;
  int64_t slots;
  int kv_heads;
  int head_dim;
};

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

// Encodes the source's map, unless its coordinates would not fit 32 bits: whether it did. The map
// has dimensions (element, e, q, j, unit): line 8 j + 2 q + e of a box holds key run * q + 2 j + e.
// A box starts at any slot, by the coordinate of e. Blocks and heads share the last dimension,
// whose step divides both of their strides.
bool EncodeKeyValue(KeyValueSource& source, const KeyValueShape& shape, int run) {
  if (shape.blocks * shape.slots == 0) return false;  // no key at all, and no map of it
  const int64_t block_stride = shape.blocks > 1 ? source.block_stride : 0;
  const int64_t head_stride = shape.kv_heads > 1 ? source.head_stride : 0;
  const int64_t step = std::max<int64_t>(std::gcd(block_stride, head_stride), 8);
  const int64_t units = (shape.blocks - 1) * (block_stride / step) +
                        (shape.kv_heads - 1) * (head_stride / step) + 1;
  if (units > std::numeric_limits<int>::max()) return false;
  source.block_units = block_stride / step;
  source.head_units = head_stride / step;
  const int64_t slot = source.slot_stride;
  source.map = EncodeMap<5>(source.data, {shape.head_dim, shape.slots, 4, run / 2, units},
                            {slot, run * slot, 2 * slot, step}, {kLine, 2, 4, run / 2, 1});
  return true;
}

int RunOf(int head_dim, Path path) {
  int run = 0;
  WithInstance(head_dim, path, [&]<int kDim, Path kPath>(Instance<kDim, kPath>) {
    run = Traits<__half, kDim, kPath>::kRun;
  });
  return run;
}

// Two query heads of a KV head share a work where there are as many, one a warpgroup.
constexpr int WorkHeads(int group) { return group % kConsumers == 0 ? kConsumers : 1; }

constexpr int RowBlockOf(int group) { return kConsumers / WorkHeads(group) * kWarpgroupRows; }

// What both feeds have in common; `fast` is the path where the gate allows it.
void Launch(const AttentionParams& attention, Params& params, const KeyValueShape& shape, Path fast,
            int64_t tokens, void* workspace, cudaStream_t stream) {
  const bool fast_gate = is_fast_gate(attention.gate) && params.key.scale == nullptr;
  const Path path = fast_gate ? fast : Path::kGeneral;
  const int run = RunOf(attention.head_dim, path);
  params.mapped = !params.float8 && EncodeKeyValue(params.key, shape, run) &&
                  EncodeKeyValue(params.value, shape, run);
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
  launch(params, attention.head_dim, path, std::min<int64_t>(multiprocessors, works), stream);
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
  Launch(params, launch, {cache.num_blocks, cache.block_size, params.kv_heads, params.head_dim},
         Path::kPages, tokens, workspace, stream);
}

void HP1PrefillWgmma(const AttentionParams& params, const KeyValueRows& rows, int64_t tokens,
                     void* workspace, cudaStream_t stream) {
  Params launch{};
  launch.key = MakeSource(rows.key, params.cache.key);
  launch.value = MakeSource(rows.value, params.cache.value);
  launch.request_rows = rows.request_rows;
  Launch(params, launch, {1, rows.rows, params.kv_heads, params.head_dim}, Path::kRows, tokens,
         workspace, stream);
}

}  // namespace asynct
