// C interface of the skeleton: named instances, tensor maps, launch.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <iterator>

#include "prefill.cuh"

namespace asynct::bench {
namespace {

struct Instance {
  const char* name;
  Config config;
  void (*kernel)(Params);
  int shared_bytes;
};

template <typename Variant>
constexpr Instance instance() {
  return {Variant::kName, Variant::kConfig, prefill<Variant>, sizeof(Shared<Variant::kConfig>)};
}

#define VARIANT(identifier, name, ...)                  \
  struct identifier {                                   \
    static constexpr const char* kName = name;          \
    static constexpr Config kConfig = {__VA_ARGS__};    \
  };
#include "variants.h"
#undef VARIANT

const Instance kInstances[] = {
#define VARIANT(identifier, ...) instance<identifier>(),
#include "variants.h"
#undef VARIANT
};

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

EncodeTiled encode_tiled() {
  static const EncodeTiled function = [] {
    void* pointer = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &pointer, 12000, cudaEnableDefault,
                                     &found);
    return reinterpret_cast<EncodeTiled>(pointer);
  }();
  return function;
}

bool encode(CUtensorMap* map, int rank, const void* base, const cuuint64_t* sizes,
            const cuuint64_t* strides, const cuuint32_t* box) {
  constexpr cuuint32_t kOnes[5] = {1, 1, 1, 1, 1};
  return encode_tiled() != nullptr &&
         encode_tiled()(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, const_cast<void*>(base), sizes,
                        strides, box, kOnes, CU_TENSOR_MAP_INTERLEAVE_NONE,
                        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool make_query_map(CUtensorMap* map, const void* query, int rows, int heads) {
  const cuuint64_t columns = static_cast<cuuint64_t>(heads) * kHeadDim;
  const cuuint64_t sizes[2] = {columns, static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {columns * 2};
  const cuuint32_t box[2] = {kLine, kWarpgroupRows};
  return encode(map, 2, query, sizes, strides, box);
}

// Dimensions (column, e, q, j, page): line 8 j + 2 q + e of a box holds key
// run * q + 2 j + e, or with run 2 (natural order) key 8 j + 2 q + e. Contiguous keys have one
// endless page, and the first key of a box is the coordinate of e: only it is checked against the
// end, so the last request needs box_keys rows of slack behind it.
bool make_key_map(CUtensorMap* map, const void* keys, const Config& config, int rows, int pages,
                  int64_t page_stride, int kv_heads) {
  const cuuint64_t columns = static_cast<cuuint64_t>(kv_heads) * kHeadDim;
  const cuuint64_t row = columns * 2;
  const cuuint32_t groups = config.box_keys() / 8;
  const cuuint64_t sizes[5] = {columns, config.paged ? 2u : static_cast<cuuint64_t>(rows), 4,
                               groups, config.paged ? static_cast<cuuint64_t>(pages) : 1u};
  const cuuint64_t strides[4] = {row, row * config.run, row * (config.run == 2 ? 8 : 2),
                                 config.paged ? static_cast<cuuint64_t>(page_stride) * 2 : row};
  const cuuint32_t box[5] = {kLine, 2, 4, groups, 1};
  return encode(map, 5, keys, sizes, strides, box);
}

}  // namespace
}  // namespace asynct::bench

#pragma GCC visibility push(default)
extern "C" {

// Mirrored by `Problem` in bench.py.
struct Problem {
  const void* query;       // bf16 [batch * length, heads, 128]
  const void* key;         // bf16 [rows, kv_heads, 128], or pages [pages, 16, kv_heads, 128]
  const void* value;
  void* out;               // bf16 [batch * length, heads, 128]
  const int* block_table;  // [batch, table_width]
  const float* sigma;      // [heads]
  const float* alpha;
  const float* gamma;
  int* counters;           // [2] zeros
  int64_t page_stride;     // elements
  float scale;
  int batch, length, heads, kv_heads, rows, pages, table_width;
  int blocks;              // thread blocks, at most one per multiprocessor
};

int prefill_instances() { return std::size(asynct::bench::kInstances); }

const char* prefill_name(int index) { return asynct::bench::kInstances[index].name; }

int prefill_is_paged(int index) { return asynct::bench::kInstances[index].config.paged; }

int prefill_is_gated(int index) { return asynct::bench::kInstances[index].config.gated; }

// Launches instance `index`; null, or what went wrong.
const char* prefill_launch(int index, const Problem* problem, cudaStream_t stream) {
  using namespace asynct::bench;
  const Instance& chosen = kInstances[index];
  const Config& config = chosen.config;
  const Problem& p = *problem;
  if (p.heads / p.kv_heads % config.heads != 0) return "heads per KV head do not fit the instance";
  Params params{};
  if (!make_query_map(&params.query, p.query, p.batch * p.length, p.heads)) return "query map";
  if (!make_key_map(&params.key, p.key, config, p.rows, p.pages, p.page_stride, p.kv_heads)) {
    return "key map";
  }
  if (!make_key_map(&params.value, p.value, config, p.rows, p.pages, p.page_stride, p.kv_heads)) {
    return "value map";
  }
  params.shape = {p.batch, p.length, p.heads, p.kv_heads, config.row_block(), config.heads,
                  section_of(p.length, p.kv_heads, p.heads, config.heads)};
  params.out = static_cast<__nv_bfloat16*>(p.out);
  params.block_table = p.block_table;
  params.table_width = p.table_width;
  params.sigma = p.sigma;
  params.alpha = p.alpha;
  params.gamma = p.gamma;
  params.scale = p.scale;
  params.counters = p.counters;
  cudaFuncSetAttribute(chosen.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       chosen.shared_bytes);
  chosen.kernel<<<p.blocks, config.threads(), chosen.shared_bytes, stream>>>(params);
  const cudaError_t status = cudaGetLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

}  // extern "C"
#pragma GCC visibility pop
