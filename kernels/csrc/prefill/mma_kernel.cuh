// hp1_prefill_mma: a block is a row block of one KV head of one request; each of its four warps
// takes rows by itself against all tiles of keys. Products by mma.sync, tiles by cp.async: a tile's
// values are on their way during its scores, the next tile's keys during the product with V.
#pragma once

#include "asynct/attention.h"
#include "asynct/mma_tile.h"
#include "asynct/ptx/matrix.cuh"
#include "asynct/ptx/mma.cuh"
#include "mma_loader.cuh"
#include "mma_scores.cuh"

namespace asynct::prefill_mma {

// kRowTiles: blocks of 16 rows a warp takes at once. Two read each key once for twice the rows.
template <int kDim, int kRowTiles>
struct Shape {
  static constexpr int kChunks = kDim / 8;           // 16-byte chunks of a row
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kRows = kWarps * kWarpRows;   // of a block
};

template <class T, int kDim, int kRowTiles>
struct Shared {
  alignas(128) T query[Shape<kDim, kRowTiles>::kRows * kDim];  // later the output
  T key[kTileKeys * kDim];
  T value[kTileKeys * kDim];
  TileSlots slots[2];
  int position[Shape<kDim, kRowTiles>::kRows];  // the last key that the row sees
};

// The rows of one block.
struct Block {
  int request;
  int kv_head;
  int first_token;  // of the request
  int prefix;       // keys before its first query; negative for a padding row of length 0
  int group;        // query heads of the KV head
  int rows;         // of the request
  int first_row;    // of the block

  __device__ __forceinline__ int position(int row) const { return prefix + row / group; }
  __device__ __forceinline__ int head(int row) const { return kv_head * group + row % group; }
  __device__ __forceinline__ int64_t token(int row) const { return first_token + row / group; }
  __device__ __forceinline__ int last_row(int first, int count) const {
    return min(first + count, rows) - 1;
  }
};

// This thread block's. The last (and heaviest) rows of all requests and KV heads come first; a
// request with fewer rows than others has none for the last thread blocks: then first_row is
// negative.
__device__ __forceinline__ Block BlockOf(const AttentionParams& params, int block_rows) {
  Block block;
  const int sequences = params.requests * params.kv_heads;
  block.request = blockIdx.x % sequences / params.kv_heads;
  block.kv_head = blockIdx.x % params.kv_heads;
  block.first_token = params.query_start_loc[block.request];
  const int tokens = params.query_start_loc[block.request + 1] - block.first_token;
  block.prefix = params.seq_lens[block.request] - tokens;
  block.group = params.heads / params.kv_heads;
  block.rows = tokens * block.group;
  block.first_row = RowBlocks{block.rows, block_rows}.first_row(blockIdx.x / sequences);
  return block;
}

template <class T, int kDim, int kRowTiles>
__device__ __forceinline__ void CopyQuery(const AttentionParams& params, const Block& block,
                                          T* shared) {
  using S = Shape<kDim, kRowTiles>;
  for (int n = threadIdx.x; n < S::kRows * S::kChunks; n += kThreads) {
    const int row = n / S::kChunks;
    const int chunk = n % S::kChunks;
    const bool valid = block.first_row + row < block.rows;
    const int packed = valid ? block.first_row + row : block.first_row;
    const T* source = static_cast<const T*>(params.query.data) +
                      block.token(packed) * params.query.token_stride +
                      block.head(packed) * params.query.head_stride + chunk * 8;
    ptx::copy_async(shared + ChunkAt(row, chunk, S::kChunks) * 8, source, valid);
  }
  ptx::copy_async_commit();
}

// What the thread knows of its rows, of the warp's from `first_row` on, and their positions.
template <int kRowTiles, class Form>
__device__ __forceinline__ void StartRows(const AttentionParams& params, const Block& block,
                                          int first_row, Row<Form> (&rows)[kRowTiles][2],
                                          int* positions) {
  const CacheView& keys = params.cache.key;
  const float stored = keys.scale ? keys.scale[block.kv_head * keys.scale_stride] : 1.0f;
  const float scale = stored * params.gate.scale;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * i + 8 * half + threadIdx.x % 32 / 4;
      rows[i][half] = {Form::Make(params.gate, block.head(first_row + row), scale), {}};
      if (threadIdx.x % 4 == 0) positions[row] = block.position(first_row + row);
    }
  }
}

// S = Q K^T; `query` is the warp's rows.
template <class T, int kDim, int kRowTiles>
__device__ __forceinline__ void MultiplyKeys(float (&s)[kRowTiles][kScores], const T* query,
                                             const T* key) {
  constexpr int kChunks = kDim / 8;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (float& x : s[i]) x = 0.0f;
  }
  const int first_a = ChunkAt(lane % 16, lane / 16, kChunks);
  const int first_b = ChunkAt(lane / 16 * 8 + lane % 8, lane / 8 % 2, kChunks);
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    uint32_t a[kRowTiles][4];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      ptx::load_matrix_x4(a[i], query + ChunkFrom(first_a, 16 * i, 2 * step, kChunks) * 8);
    }
#pragma unroll
    for (int columns = 0; columns < kTileKeys / 16; ++columns) {
      uint32_t b[4];
      ptx::load_matrix_x4(b, key + ChunkFrom(first_b, 16 * columns, 2 * step, kChunks) * 8);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float(&d)[4] = reinterpret_cast<float(&)[4]>(s[i][8 * columns + 4 * half]);
          ptx::mma<T>(d, a[i][0], a[i][1], a[i][2], a[i][3], b[2 * half], b[2 * half + 1]);
        }
      }
    }
  }
}

// O += P V.
template <class T, int kDim, int kRowTiles>
__device__ __forceinline__ void MultiplyValues(float (&o)[kRowTiles][kDim / 2],
                                               const uint32_t (&p)[kRowTiles][kScores / 8][4],
                                               const T* value) {
  constexpr int kChunks = kDim / 8;
  const int lane = threadIdx.x % 32;
  const int first = ChunkAt(lane % 16, lane / 16, kChunks);
#pragma unroll
  for (int step = 0; step < kTileKeys / 16; ++step) {
#pragma unroll
    for (int columns = 0; columns < kDim / 16; ++columns) {
      uint32_t b[4];
      ptx::load_matrix_x4_transposed(
          b, value + ChunkFrom(first, 16 * step, 2 * columns, kChunks) * 8);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        const uint32_t(&a)[4] = p[i][step];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float(&d)[4] = reinterpret_cast<float(&)[4]>(o[i][8 * columns + 4 * half]);
          ptx::mma<T>(d, a[0], a[1], a[2], a[3], b[2 * half], b[2 * half + 1]);
        }
      }
    }
  }
}

// Rounds the warp's output rows into `shared`, where its queries were, and writes them from there
// in chunks of 16 bytes. The rows are the warp's, from row `warp_row` of the block on, `shared`
// their place.
template <class T, int kDim, int kRowTiles>
__device__ __forceinline__ void StoreOutput(const AttentionParams& params,
                                            const float (&o)[kRowTiles][kDim / 2], int warp_row,
                                            T* shared) {
  using S = Shape<kDim, kRowTiles>;
  const Block block = BlockOf(params, S::kRows);  // anew: the registers had other use meanwhile
  const int first_row = block.first_row + warp_row;
  const int lane = threadIdx.x % 32;
  const CacheView& values = params.cache.value;
  const float stored = values.scale ? values.scale[block.kv_head * values.scale_stride] : 1.0f;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * i + 8 * half + lane / 4;
      const float gamma = stored * params.gate.gamma[block.head(first_row + row)];
#pragma unroll
      for (int chunk = 0; chunk < S::kChunks; ++chunk) {
        const float* d = o[i] + 4 * chunk + 2 * half;
        const auto pair = PairOf<T>::Round(gamma * d[0], gamma * d[1]);
        T* place = shared + ChunkAt(row, chunk, S::kChunks) * 8 + lane % 4 * 2;
        *reinterpret_cast<uint32_t*>(place) = reinterpret_cast<const uint32_t&>(pair);
      }
    }
  }
  __syncwarp();
  for (int n = lane; n < S::kWarpRows * S::kChunks; n += 32) {
    const int row = n / S::kChunks;
    const int chunk = n % S::kChunks;
    if (first_row + row >= block.rows) break;
    T* out = static_cast<T*>(params.out) + block.token(first_row + row) * params.out_token_stride +
             block.head(first_row + row) * params.out_head_stride + chunk * 8;
    *reinterpret_cast<uint4*>(out) =
        *reinterpret_cast<const uint4*>(shared + ChunkAt(row, chunk, S::kChunks) * 8);
  }
}

template <class T, class Stored, int kDim, int kRowTiles, class Form>
__global__ void __launch_bounds__(kThreads, 2)
    HP1PrefillMmaKernel(const __grid_constant__ AttentionParams params) {
  using S = Shape<kDim, kRowTiles>;
  extern __shared__ __align__(128) char memory[];
  Shared<T, kDim, kRowTiles>& shared = *reinterpret_cast<Shared<T, kDim, kRowTiles>*>(memory);

  const Block block = BlockOf(params, S::kRows);
  if (block.first_row < 0) return;
  const int end = max(block.position(block.last_row(block.first_row, S::kRows)) + 1, 0);
  Loader<T, Stored, kDim> loader(params, block.request, block.kv_head, end);
  loader.Ask(0);
  CopyQuery<T, kDim, kRowTiles>(params, block, shared.query);
  loader.Publish(0, shared.slots[0]);
  loader.Ask(kTileKeys);
  __syncthreads();
  loader.CopyRows(shared.key, shared.slots[0].key);

  const int warp_row = threadIdx.x / 32 * S::kWarpRows;
  const int first_row = block.first_row + warp_row;
  T* const query = shared.query + warp_row * kDim;
  int* const positions = shared.position + warp_row;
  Row<Form> rows[kRowTiles][2];
  StartRows(params, block, first_row, rows, positions);
  const int last_position =
      first_row < block.rows ? block.position(block.last_row(first_row, S::kWarpRows)) : -1;

  float o[kRowTiles][kDim / 2];
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (float& x : o[i]) x = 0.0f;
  }
  // Even a padding row, which sees no key, takes one tile (of zeros): the copies have to arrive.
  int first_key = 0;
  do {
    const int next_key = first_key + kTileKeys;
    TileSlots& slots = shared.slots[first_key / kTileKeys % 2];
    TileSlots& next_slots = shared.slots[next_key / kTileKeys % 2];
    const bool seen = first_key <= last_position;  // by any row of the warp
    uint32_t p[kRowTiles][kScores / 8][4];

    loader.Arrive(shared.key);  // and everyone is done with the last tile's values
    loader.CopyRows(shared.value, slots.value);
    loader.Publish(next_key, next_slots);
    loader.Ask(next_key + kTileKeys);
    if (seen) {
      float s[kRowTiles][kScores];
      MultiplyKeys<T, kDim, kRowTiles>(s, query, shared.key);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        GateScores(s[i], rows[i]);
        if (next_key + S::kWarpRows > last_position) {
          MaskScores(s[i], positions + 16 * i, first_key);
        }
        PackScores<T>(s[i], p[i]);
      }
    }
    loader.Arrive(shared.value);  // and everyone is done with the keys
    if (next_key < end) loader.CopyRows(shared.key, next_slots.key);
    if (seen) MultiplyValues<T, kDim, kRowTiles>(o, p, shared.value);
    first_key = next_key;
  } while (first_key < end);
  StoreOutput<T, kDim, kRowTiles>(params, o, warp_row, query);
}

}  // namespace asynct::prefill_mma
