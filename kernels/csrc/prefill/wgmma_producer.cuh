// The producer warpgroup: two warps feed K and two feed V; the first of them also takes works and
// feeds Q.
#pragma once

#include "asynct/fp8.cuh"
#include "asynct/ptx/cp_async.cuh"
#include "asynct/ptx/dependent_launch.cuh"
#include "asynct/ptx/tma.cuh"
#include "wgmma_shared.cuh"

namespace asynct::prefill_wgmma {

// Feeds one half of each key (or value) tile of works, in ascending order. Its methods are called
// by a whole warp. Keys past the request's end become zeros.
template <class Traits>
class Feeder {
  using Element = typename Traits::Element;
  using Tile = typename Shared<Traits>::Tile;
  static constexpr int kHalf = Traits::kTileKeys / kFeedingWarps;
  static constexpr int kChunk = 8;                             // elements that a lane copies
  static constexpr int kRowLanes = Traits::kHeadDim / kChunk;  // lanes that copy a key's row
  static constexpr int kRows = 32 / kRowLanes;                 // rows of a warp's copy
  static constexpr int kBlockKeys = 16;                        // keys sure to be in one block
  static constexpr int kBlocks = kHalf / kBlockKeys;

 public:
  __device__ __forceinline__ Feeder(const Params& params, const KeyValueSource& source,
                                    Tile* tiles, Ring<Traits::kStages>& ring, int half)
      : params_(params), source_(source), tiles_(tiles), ring_(ring), half_(half) {}

  __device__ __forceinline__ void Feed(const Work& work) {
    const int lane = threadIdx.x % 32;
    const RowBlock block = work.block;
    const int tiles = work.tiles;
    const char* lane_data =
        static_cast<const char*>(source_.data) +
        Bytes(work.kv_head * source_.head_stride + lane / kRowLanes * source_.slot_stride +
              lane % kRowLanes * kChunk);
    // Each lane looks up one of a tile's blocks, a tile ahead.
    const auto look_up = [&](int tile) {
      const int key = tile * Traits::kTileKeys + half_ * kHalf + lane % kBlocks * kBlockKeys;
      return key < block.keys ? Bytes(OffsetOf(block, key)) : 0;
    };
    int64_t following = look_up(0);
    for (int tile = 0; tile < tiles; ++tile, ++at_.count) {
      const int first_key = tile * Traits::kTileKeys + half_ * kHalf;
      const int64_t own_block = following;
      following = look_up(tile + 1);
      ring_.WaitEmpty(at_);
      if (params_.mapped && (tile + 1) * Traits::kTileKeys <= block.keys) {
        Load(FirstRow(block) + tile * Traits::kTileKeys, work.kv_head);
      } else {
        Copy(tiles_[at_.Slot()], lane_data, own_block, block.keys - first_key);
      }
    }
  }

 private:
  // The request's first row, without a block table.
  __device__ __forceinline__ int FirstRow(const RowBlock& block) const {
    return params_.request_rows > 0 ? block.request * params_.request_rows
                                    : block.token - block.position;
  }
  // Of a key's row in the source, in elements.
  __device__ __forceinline__ int64_t OffsetOf(const RowBlock& block, int key) const {
    if (params_.block_table == nullptr) return (FirstRow(block) + key) * source_.slot_stride;
    const int32_t* blocks = params_.block_table + block.request * params_.table_stride;
    return blocks[key / params_.block_size] * source_.block_stride +
           key % params_.block_size * source_.slot_stride;
  }

  // Half of the tile of contiguous rows from `row`, by the copy engine: half of each thread's keys.
  __device__ __forceinline__ void Load(int row, int kv_head) {
    uint64_t* full = &ring_.full[at_.Slot()];
    if (threadIdx.x % 32 != 0) return ptx::mbarrier_arrive(full);
    ptx::mbarrier_arrive_expect(full, sizeof(Tile) / kFeedingWarps);
#pragma unroll
    for (int line = 0; line < Traits::kLines; ++line) {
      ptx::tma_load_5d(tiles_[at_.Slot()][line] + half_ * kHalf * kLine, &source_.map, full,
                       line * kLine, row, 0, half_ * kHalf / 8, kv_head);
    }
  }

  // Copies the half tile, of which `keys` keys exist. Lane i knows where block i of it begins.
  __device__ __forceinline__ void Copy(Tile& tile, const char* lane_data, int64_t own_block,
                                       int keys) {
    const int lane_row = threadIdx.x % 32 / kRowLanes;
    const int chunk = threadIdx.x % kRowLanes;
    // A key's row of the tile is the sum of those of its parts. Each part has its own of the row's
    // last three bits, with which the swizzle goes.
    const int row = TileRowOf(half_ * kHalf, Traits::kRun) + TileRowOf(lane_row, Traits::kRun);
    Element* swizzled[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      swizzled[i] = tile[chunk / 8] + row * kLine + ((chunk ^ row ^ i) & 7) * kChunk;
    }
    const int lane_keys = keys - lane_row;
    const int64_t step = Bytes(kRows * source_.slot_stride);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const char* from = lane_data + __shfl_sync(~0u, own_block, block);
#pragma unroll
      for (int i = 0; i < kBlockKeys; i += kRows, from += step) {
        const int key = block * kBlockKeys + i;
        const int key_row = TileRowOf(key, Traits::kRun);
        Element* to = swizzled[key_row & 7] + key_row * kLine;
        if (IsFloat8()) {
          *reinterpret_cast<uint4*>(to) =
              key < lane_keys ? ReadFp8(from) : make_uint4(0, 0, 0, 0);
        } else {
          ptx::copy_async(to, from, key < lane_keys);
        }
      }
    }
    if (IsFloat8()) {
      ring_.Publish(at_);
    } else {
      ptx::copy_async_arrive(&ring_.full[at_.Slot()]);
    }
  }

  __device__ __forceinline__ bool IsFloat8() const { return !Traits::kFast && params_.float8; }

  __device__ __forceinline__ int64_t Bytes(int64_t elements) const {
    return elements * (IsFloat8() ? 1 : sizeof(Element));
  }
  // Eight elements of the source, in the queries' type.
  static __device__ __forceinline__ uint4 ReadFp8(const char* from) {
    const uint2 bytes = __ldg(reinterpret_cast<const uint2*>(from));
    uint32_t low[2];
    uint32_t high[2];
    FromFp8<Element>(bytes.x, low);
    FromFp8<Element>(bytes.y, high);
    return make_uint4(low[0], low[1], high[0], high[1]);
  }

  const Params& params_;
  const KeyValueSource& source_;
  Tile* tiles_;
  Ring<Traits::kStages>& ring_;
  const int half_;
  RingPosition<Traits::kStages> at_;
};

// Feeds the queries of the n-th work.
template <class Traits>
__device__ __forceinline__ void FeedQuery(const Params& params, Shared<Traits>& shared,
                                          uint32_t n) {
  const Work& work = shared.WorkAt(n);
  const RingPosition<Traits::kQuerySlots> at{n};
  shared.query_ring.WaitEmpty(at);
  if (threadIdx.x % 32 != 0) return;
  uint64_t* full = &shared.query_ring.full[at.Slot()];
  ptx::mbarrier_arrive_expect(full, sizeof(shared.query[0]));
#pragma unroll
  for (int i = 0; i < kConsumers; ++i) {
    const int head = work.head + i % params.work_heads;
    const int token = work.block.token + i / params.work_heads * kWarpgroupRows;
#pragma unroll
    for (int line = 0; line < Traits::kLines; ++line) {
      ptx::tma_load_3d(shared.query[at.Slot()][i][line], &params.query, full, line * kLine, head,
                       token);
    }
  }
}

// Work number `index` of `works`, of this row block.
template <class Traits>
__device__ __forceinline__ Work MakeWork(const Params& params, const RowBlock& block, int index,
                                         int works) {
  const int head = index % params.head_works * params.work_heads;
  return {block, head, head / params.group,
          index < works ? TilesOf(block, Traits::kTileKeys) : 0};
}

template <class Traits>
__device__ __forceinline__ void ProduceWork(const Params& params, Shared<Traits>& shared) {
  ptx::wait_for_kernel_ahead();
  const bool leader = threadIdx.x % 32 == 0;
  const RowBlock* blocks = reinterpret_cast<const RowBlock*>(params.schedule + 1);
  const int works = params.schedule->row_blocks * params.head_works;
  const auto take = [&] {
    return leader ? gridDim.x + atomicAdd(&params.schedule->taken, 1) : 0;
  };
  Feeder<Traits> keys(params, params.key, shared.key, shared.key_ring, 0);
  int index = blockIdx.x;
  int following = take();
  RowBlock block = blocks[index < works ? index / params.head_works : 0];
  for (uint32_t n = 0;; ++n) {
    shared.work_ring.WaitEmpty({n});
    if (leader) {
      shared.WorkAt(n) = MakeWork<Traits>(params, block, index, works);
      shared.work_ring.Publish({n});
    }
    __syncwarp();
    if (index >= works) return;
    // Asked for now, used when the tiles of this one are on their way.
    index = __shfl_sync(~0u, following, 0);
    following = take();
    block = blocks[index < works ? index / params.head_works : 0];
    FeedQuery(params, shared, n);
    keys.Feed(shared.WorkAt(n));
  }
}

// Called by the producer warpgroup; `warp` counts from 0 within it.
template <class Traits>
__device__ __forceinline__ void Produce(const Params& params, Shared<Traits>& shared, int warp) {
  if (warp == 0) {
    ProduceWork(params, shared);
    return;
  }
  const bool keys = warp == 1;
  Feeder<Traits> feeder(params, keys ? params.key : params.value, keys ? shared.key : shared.value,
                        keys ? shared.key_ring : shared.value_ring, warp % kFeedingWarps);
  for (uint32_t n = 0; shared.WaitWork(n).tiles > 0; ++n) {
    feeder.Feed(shared.WorkAt(n));
    shared.work_ring.Release({n});
  }
}

}  // namespace asynct::prefill_wgmma
