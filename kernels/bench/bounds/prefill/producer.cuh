// The producer warpgroup: one warp hands out work and feeds K, one feeds V, one feeds Q.
#pragma once

#include "asynct/ptx/tma.cuh"
#include "shared.cuh"

namespace asynct::bench {

// Loads the key (or value) tiles of one work item, in ascending order. Called by a whole warp: its
// lanes look up the tile's pages while the ring has no empty slot yet, lane 0 starts the copies.
template <Config kConfig>
__device__ void feed_tiles(const Params& params, const CUtensorMap& map, const Work& work,
                           __nv_bfloat16 (*tiles)[kHalves][kConfig.tile_keys * kLine],
                           Ring<kConfig.stages>& ring, RingPosition<kConfig.stages>& at) {
  constexpr int kBoxes = kConfig.tile_keys / kConfig.box_keys();
  constexpr int kBoxElements = kConfig.box_keys() * kLine;
  const int lane = threadIdx.x % 32;
  const int column = work.kv_head * kHeadDim;
  const int tiles_seen = tiles_of(params.shape, work.row, kConfig.tile_keys);
  const int* table = params.block_table + static_cast<int64_t>(work.request) * params.table_width;
  const int pages = (params.shape.length + kPage - 1) / kPage;
  for (int tile = 0; tile < tiles_seen; ++tile) {
    // Past the request's last page, -1 lies outside the tensor and loads zeros.
    int own_page = 0;
    if constexpr (kConfig.paged) {
      const int index = tile * kBoxes + lane % kBoxes;
      own_page = index < pages ? table[index] : -1;
    }
    ring.wait_empty(at);
    if (lane == 0) ptx::mbarrier_arrive_expect(&ring.full[at.slot()], sizeof(tiles[0]));
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const int row = kConfig.paged ? 0
                                    : work.request * params.shape.length +
                                          tile * kConfig.tile_keys + box * kConfig.box_keys();
      const int page = __shfl_sync(~0u, own_page, box);
      if (lane == 0) {
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          ptx::tma_load_5d(&tiles[at.slot()][half][box * kBoxElements], &map, &ring.full[at.slot()],
                           column + half * kLine, row, 0, 0, page);
        }
      }
    }
    ++at.count;
  }
}

template <Config kConfig>
__device__ void feed_query(const Params& params, const Work& work, Shared<kConfig>& shared,
                           uint32_t n) {
  shared.query_ring.wait_empty({n});
  if (threadIdx.x % 32 != 0) return;
  ptx::mbarrier_arrive_expect(&shared.query_ring.full[0], sizeof(shared.query));
#pragma unroll
  for (int i = 0; i < kConfig.consumers; ++i) {
    const int row = work.request * params.shape.length + work.row +
                    i / kConfig.heads * kWarpgroupRows;
    const int column = (work.head + i % kConfig.heads) * kHeadDim;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      ptx::tma_load_2d(shared.query[i][half], &params.query, &shared.query_ring.full[0],
                       column + half * kLine, row);
    }
  }
}

template <Config kConfig>
__device__ void produce_work_and_keys(const Params& params, Shared<kConfig>& shared) {
  RingPosition<kWorkSlots> at;
  RingPosition<kConfig.stages> at_key;
  const int works = params.shape.works();
  const bool leader = threadIdx.x % 32 == 0;
  int index = blockIdx.x;
  while (true) {
    shared.work_ring.wait_empty(at);
    if (leader) {
      shared.work[at.slot()] = index < works ? index : -1;
      ptx::mbarrier_arrive(&shared.work_ring.full[at.slot()]);
    }
    ++at.count;
    if (index >= works) break;
    const int following = leader ? gridDim.x + atomicAdd(&params.counters[0], 1) : 0;
    feed_tiles<kConfig>(params, params.key, work_at(params.shape, index), shared.key,
                        shared.key_ring, at_key);
    index = __shfl_sync(~0u, following, 0);
  }
  // The last block leaves the counters as it found them.
  if (leader && atomicAdd(&params.counters[1], 1) == static_cast<int>(gridDim.x) - 1) {
    params.counters[0] = 0;
    params.counters[1] = 0;
  }
}

// Called by the producer warpgroup; `warp` counts from 0 within it.
template <Config kConfig>
__device__ void produce(const Params& params, Shared<kConfig>& shared, int warp) {
  if (warp == 0) {
    produce_work_and_keys<kConfig>(params, shared);
  } else if (warp == 1) {
    RingPosition<kConfig.stages> at;
    int index;
    for (uint32_t n = 0; (index = shared.take_work(n)) >= 0; ++n) {
      feed_tiles<kConfig>(params, params.value, work_at(params.shape, index), shared.value,
                          shared.value_ring, at);
    }
  } else if (warp == 2) {
    int index;
    for (uint32_t n = 0; (index = shared.take_work(n)) >= 0; ++n) {
      feed_query<kConfig>(params, work_at(params.shape, index), shared, n);
    }
  }
}

}  // namespace asynct::bench
