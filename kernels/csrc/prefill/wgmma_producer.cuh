// The producer warpgroup: one warp takes works and feeds K, one feeds V, one feeds Q.
#pragma once

#include "asynct/fp8.cuh"
#include "asynct/ptx/dependent_launch.cuh"
#include "asynct/ptx/tma.cuh"
#include "wgmma_shared.cuh"

namespace asynct::prefill_wgmma {

// Feeds the key (or value) tiles of works, in ascending order. Its methods are called by a whole
// warp.
template <class Traits>
class Feeder {
  using Element = typename Traits::Element;
  using Tile = typename Shared<Traits>::Tile;

 public:
  __device__ __forceinline__ Feeder(const Params& params, const KeyValueSource& source,
                                    Tile* tiles, Ring<Traits::kStages>& ring)
      : params_(params), source_(source), tiles_(tiles), ring_(ring) {}

  __device__ __forceinline__ void Feed(const Work& work) {
    for (int tile = 0; tile < work.tiles; ++tile, ++at_.count) {
      const int first_key = tile * Traits::kTileKeys;
      if (first_key + Traits::kTileKeys <= work.block.keys && params_.mapped) {
        Load(work, first_key);
      } else {
        Copy(work, first_key);
      }
    }
  }

 private:
  struct Place {
    int block;
    int slot;
  };

  __device__ __forceinline__ Place PlaceOf(const Work& work, int key) const {
    const RowBlock& block = work.block;
    if (params_.block_table == nullptr) {
      const int first = params_.request_rows > 0 ? block.request * params_.request_rows
                                                 : block.token - block.position;
      return {0, first + key};
    }
    const int32_t* blocks = params_.block_table + block.request * params_.table_stride;
    return {blocks[key / params_.block_size], key % params_.block_size};
  }

  // A tile of the request's own keys, by the copy engine: the lanes look up where its boxes are
  // while the ring has no empty slot yet, lane 0 starts the copies.
  __device__ __forceinline__ void Load(const Work& work, int first_key) {
    constexpr int kBoxes = Traits::kTileKeys / Traits::kBoxKeys;
    const int lane = threadIdx.x % 32;
    const Place own = PlaceOf(work, first_key + lane % kBoxes * Traits::kBoxKeys);
    const int own_unit = own.block * source_.block_units + work.kv_head * source_.head_units;
    ring_.WaitEmpty(at_);
    uint64_t* full = &ring_.full[at_.Slot()];
    if (lane == 0) ptx::mbarrier_arrive_expect(full, sizeof(Tile));
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const int slot = __shfl_sync(~0u, own.slot, box);
      const int unit = __shfl_sync(~0u, own_unit, box);
      if (lane != 0) continue;
#pragma unroll
      for (int line = 0; line < Traits::kLines; ++line) {
        ptx::tma_load_5d(&tiles_[at_.Slot()][line][box * Traits::kBoxKeys * kLine], &source_.map,
                         full, line * kLine, slot, 0, 0, unit);
      }
    }
  }

  // A tile by ordinary loads: rows past the request's end become zeros, fp8 becomes 16-bit.
  __device__ __forceinline__ void Copy(const Work& work, int first_key) {
    constexpr int kChunks = Traits::kHeadDim / 8;  // of a row, 16 bytes each
    ring_.WaitEmpty(at_);
    Tile& tile = tiles_[at_.Slot()];
#pragma unroll 1
    for (int i = threadIdx.x % 32; i < Traits::kTileKeys * kChunks; i += 32) {
      const int key = i / kChunks;
      const int chunk = i % kChunks;
      uint4 bits = make_uint4(0, 0, 0, 0);
      if (first_key + key < work.block.keys) {
        const Place place = PlaceOf(work, first_key + key);
        bits = ReadChunk(place.block * source_.block_stride + place.slot * source_.slot_stride +
                         work.kv_head * source_.head_stride + chunk * 8);
      }
      const int row = TileRowOf(key, Traits::kRun);
      Element* line = &tile[chunk / 8][row * kLine];
      *reinterpret_cast<uint4*>(line + ((chunk ^ row) & 7) * 8) = bits;
    }
    ptx::fence_shared_stores();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ring_.Publish(at_);
  }

  // Eight elements of the source.
  __device__ __forceinline__ uint4 ReadChunk(int64_t offset) const {
    if (!params_.float8) {
      return __ldg(reinterpret_cast<const uint4*>(static_cast<const Element*>(source_.data) +
                                                  offset));
    }
    const uint2 bytes = __ldg(
        reinterpret_cast<const uint2*>(static_cast<const unsigned char*>(source_.data) + offset));
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
__device__ __forceinline__ void ProduceWorkAndKeys(const Params& params, Shared<Traits>& shared) {
  ptx::wait_for_kernel_ahead();
  const bool leader = threadIdx.x % 32 == 0;
  const RowBlock* blocks = reinterpret_cast<const RowBlock*>(params.schedule + 1);
  const int works = params.schedule->row_blocks * params.head_works;
  const auto take = [&] {
    return leader ? gridDim.x + atomicAdd(&params.schedule->taken, 1) : 0;
  };
  Feeder<Traits> keys(params, params.key, shared.key, shared.key_ring);
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
    keys.Feed(shared.WorkAt(n));
  }
}

// Called by the producer warpgroup; `warp` counts from 0 within it.
template <class Traits>
__device__ __forceinline__ void Produce(const Params& params, Shared<Traits>& shared, int warp) {
  if (warp == 0) {
    ProduceWorkAndKeys(params, shared);
  } else if (warp == 1) {
    Feeder<Traits> values(params, params.value, shared.value, shared.value_ring);
    for (uint32_t n = 0; shared.WaitWork(n).tiles > 0; ++n) {
      values.Feed(shared.WorkAt(n));
      shared.work_ring.Release({n});
    }
  } else if (warp == 2) {
    for (uint32_t n = 0; shared.WaitWork(n).tiles > 0; ++n) {
      FeedQuery(params, shared, n);
      shared.work_ring.Release({n});
    }
  }
}

}  // namespace asynct::prefill_wgmma
