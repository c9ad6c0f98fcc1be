// A consumer warpgroup: 64 query rows of one head against all their key tiles.
#pragma once

#include "asynct/ptx/matrix.cuh"
#include "asynct/ptx/warpgroup.cuh"
#include "asynct/ptx/wgmma.cuh"
#include "scores.cuh"
#include "shared.cuh"

namespace asynct::bench {

inline constexpr int kSteps = kHeadDim / 16;  // wgmma steps over the head

// Address of 16-byte chunk `chunk` of a row in lines with the 128-byte swizzle.
__device__ __forceinline__ __nv_bfloat16* swizzled(__nv_bfloat16* lines, int row, int chunk) {
  return lines + row * kLine + ((chunk ^ row) & 7) * 8;
}

template <Config kConfig>
struct Consumer {
  static constexpr int kScores = kConfig.tile_keys / 2;
  static constexpr uint32_t kHalfBytes = kConfig.tile_keys * kLine * sizeof(__nv_bfloat16);

  const Params& params;
  Shared<kConfig>& shared;
  const int group;  // warpgroup, 0 .. consumers - 1
  RingPosition<kConfig.stages> at;  // of the current work's first key and value tile

  __device__ __forceinline__ void take_turn() {
    if constexpr (kConfig.turns) ptx::named_barrier_wait(1 + group, 2 * kWarpgroup);
  }
  __device__ __forceinline__ void pass_turn() {
    if constexpr (kConfig.turns) {
      const int following = group + 1 == kConfig.consumers ? 0 : group + 1;
      ptx::named_barrier_arrive(1 + following, 2 * kWarpgroup);
    }
  }

  __device__ __forceinline__ void load_query(uint32_t (&fragments)[kSteps][4]) {
    const int lane = threadIdx.x % 32;
    const int row = threadIdx.x % kWarpgroup / 32 * 16 + lane % 16;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      ptx::load_matrix_x4(fragments[step], swizzled(shared.query[group][step / 4], row,
                                                    step % 4 * 2 + lane / 16));
    }
  }

  // S = Q K^T. Two K-major lines of 64 make a head; a step is 32 bytes within a line.
  __device__ __forceinline__ void multiply_keys(float (&s)[kScores],
                                                const uint32_t (&query)[kSteps][4], int slot) {
    const uint64_t key = ptx::wgmma_descriptor(shared.key[slot], 0, 1024);
    const uint64_t rows = ptx::wgmma_descriptor(shared.query[group], 0, 1024);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint64_t b = ptx::wgmma_advance(key, step / 4 * kHalfBytes + step % 4 * 32);
      if constexpr (kConfig.query_registers) {
        ptx::wgmma<0>(s, query[step], b, step > 0);
      } else {
        const uint32_t half = sizeof(shared.query[0][0]);
        ptx::wgmma<0>(s, ptx::wgmma_advance(rows, step / 4 * half + step % 4 * 32), b, step > 0);
      }
    }
  }

  // O += P V. V is N-major (the head runs along its lines); a step is 16 lines.
  __device__ __forceinline__ void multiply_values(float (&o)[kHeadDim / 2],
                                                  const uint32_t (&p)[kScores / 8][4], int slot) {
    const uint64_t value = ptx::wgmma_descriptor(shared.value[slot], kHalfBytes, 1024);
#pragma unroll
    for (int step = 0; step < kScores / 8; ++step) {
      ptx::wgmma<1>(o, p[step], ptx::wgmma_advance(value, step * 16 * 128), true);
    }
  }

  // The scores of tile `tile` become p, in place. `row` is the thread's first row's position.
  __device__ __forceinline__ void score_to_p(float (&s)[kScores], const Gate& gate,
                                             GateLeft (&carry)[2], int tile, int row) {
    if constexpr (kConfig.gated) gate_scores<kConfig.run>(s, gate, carry);
    const int first_key = tile * kConfig.tile_keys;
    const int first_row = row - threadIdx.x % kWarpgroup / 32 * 16 - threadIdx.x % 32 / 4;
    if (first_key + kConfig.tile_keys > first_row + 1) {
      const int seen[2] = {row + 1 - first_key, row + 9 - first_key};
      mask_scores<kConfig.run>(s, seen);
    }
  }

  // Output rows go through the warp's own 16 rows of shared memory, to leave as 16-byte stores.
  __device__ __forceinline__ void store_out(const float (&o)[kHeadDim / 2], float gamma,
                                            const Work& work, int head, int first_row) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x % kWarpgroup / 32;
    __nv_bfloat16* rows = shared.out[group * 4 + warp];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; i += 8) {
      uint32_t tiles[4];
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const __nv_bfloat162 pair =
            __floats2bfloat162_rn(gamma * o[i + 2 * t], gamma * o[i + 2 * t + 1]);
        tiles[t] = reinterpret_cast<const uint32_t&>(pair);
      }
      const int row = lane % 16;
      const int chunk = i / 4 + lane / 16;
      ptx::store_matrix_x4(rows + row * kHeadDim + (chunk ^ (row & 7)) * 8, tiles[0], tiles[1],
                           tiles[2], tiles[3]);
    }
    __syncwarp();
    const int chunk = lane % 16;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = 2 * i + lane / 16;
      const int position = first_row + warp * 16 + row;
      if (position >= params.shape.length) continue;
      const int64_t token = static_cast<int64_t>(work.request) * params.shape.length + position;
      __nv_bfloat16* out = params.out + (token * params.shape.heads + head) * kHeadDim + chunk * 8;
      *reinterpret_cast<uint4*>(out) = *reinterpret_cast<const uint4*>(
          rows + row * kHeadDim + (chunk ^ (row & 7)) * 8);
    }
  }

  // Work number `n` of this block.
  __device__ __forceinline__ void attend(const Work& work, uint32_t n) {
    const int head = work.head + group % kConfig.heads;
    const int first_row = work.row + group / kConfig.heads * kWarpgroupRows;
    const int row = first_row + threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 4;
    const int tiles = tiles_of(params.shape, work.row, kConfig.tile_keys);
    const Gate gate = make_gate(params.sigma[head], params.alpha[head], params.scale);
    const float gamma = kConfig.gated ? params.gamma[head] : 1.0f;
    const auto tile_at = [&](int tile) { return RingPosition<kConfig.stages>{at.count + tile}; };

    float o[kHeadDim / 2];
#pragma unroll
    for (float& x : o) x = 0.0f;
    float s[kScores];
    uint32_t p[kScores / 8][4];
    uint32_t query[kSteps][4];
    GateLeft carry[2] = {};

    shared.query_ring.wait_full({n});
    if constexpr (kConfig.query_registers) {
      load_query(query);
      shared.query_ring.release({n});
    }

    shared.key_ring.wait_full(tile_at(0));
    take_turn();
    ptx::wgmma_fence();
    multiply_keys(s, query, tile_at(0).slot());
    ptx::wgmma_commit();
    pass_turn();
    ptx::wgmma_wait<0>();
    shared.key_ring.release(tile_at(0));
    ptx::wgmma_pin(s);
    score_to_p(s, gate, carry, 0, row);
    pack_scores(s, p);

    for (int tile = 1; tile < tiles; ++tile) {
      const auto key_at = tile_at(tile);
      const auto value_at = tile_at(tile - 1);
      if constexpr (kConfig.schedule == Schedule::kSerial) {
        shared.value_ring.wait_full(value_at);
        take_turn();
        ptx::wgmma_fence();
        multiply_values(o, p, value_at.slot());
        ptx::wgmma_commit();
        pass_turn();
        shared.key_ring.wait_full(key_at);
        ptx::wgmma_wait<0>();
        shared.value_ring.release(value_at);
        ptx::wgmma_pin(o);
        take_turn();
        ptx::wgmma_fence();
        multiply_keys(s, query, key_at.slot());
        ptx::wgmma_commit();
        pass_turn();
        ptx::wgmma_wait<0>();
        shared.key_ring.release(key_at);
        ptx::wgmma_pin(s);
        score_to_p(s, gate, carry, tile, row);
      } else if constexpr (kConfig.schedule == Schedule::kPaired) {
        shared.value_ring.wait_full(value_at);
        shared.key_ring.wait_full(key_at);
        take_turn();
        ptx::wgmma_fence();
        multiply_values(o, p, value_at.slot());
        multiply_keys(s, query, key_at.slot());
        ptx::wgmma_commit();
        pass_turn();
        ptx::wgmma_wait<0>();
        shared.value_ring.release(value_at);
        shared.key_ring.release(key_at);
        ptx::wgmma_pin(s);
        score_to_p(s, gate, carry, tile, row);
      } else {
        shared.key_ring.wait_full(key_at);
        take_turn();
        ptx::wgmma_fence();
        multiply_keys(s, query, key_at.slot());
        ptx::wgmma_commit();
        shared.value_ring.wait_full(value_at);
        ptx::wgmma_fence();
        multiply_values(o, p, value_at.slot());
        ptx::wgmma_commit();
        pass_turn();
        ptx::wgmma_wait<1>();
        shared.key_ring.release(key_at);
        ptx::wgmma_pin(s);
        score_to_p(s, gate, carry, tile, row);
        ptx::wgmma_wait<0>();
        shared.value_ring.release(value_at);
        ptx::wgmma_pin(s);
      }
      pack_scores(s, p);
    }
    if constexpr (!kConfig.query_registers) shared.query_ring.release({n});

    const auto last_at = tile_at(tiles - 1);
    shared.value_ring.wait_full(last_at);
    take_turn();
    ptx::wgmma_fence();
    multiply_values(o, p, last_at.slot());
    ptx::wgmma_commit();
    pass_turn();
    ptx::wgmma_wait<0>();
    shared.value_ring.release(last_at);
    ptx::wgmma_pin(o);
    at.count += tiles;
    store_out(o, gamma, work, head, first_row);
  }

  // The warpgroup's rows of one work.
  struct Rows {
    Work work;
    int head;
    int first;   // position of its first row
    int tiles;
  };

  __device__ __forceinline__ Rows rows_of(int index) const {
    const Work work = work_at(params.shape, index);
    return {work, work.head + group % kConfig.heads,
            work.row + group / kConfig.heads * kWarpgroupRows,
            tiles_of(params.shape, work.row, kConfig.tile_keys)};
  }

  __device__ __forceinline__ void run_linked() {
    int index = shared.take_work(0);
    if (index < 0) return;
    const int thread_row = threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 4;
    float o[kHeadDim / 2];
    float s[kScores];
    uint32_t p[kScores / 8][4];
    uint32_t query[kSteps][4];
#pragma unroll
    for (float& x : o) x = 0.0f;

    Rows rows = rows_of(index);
    Gate gate = make_gate(params.sigma[rows.head], params.alpha[rows.head], params.scale);
    GateLeft carry[2] = {};
    shared.query_ring.wait_full({0});
    load_query(query);
    shared.query_ring.release({0});
    shared.key_ring.wait_full({0});
    take_turn();
    ptx::wgmma_fence();
    multiply_keys(s, query, 0);
    ptx::wgmma_commit();
    pass_turn();
    ptx::wgmma_wait<0>();
    shared.key_ring.release({0});
    ptx::wgmma_pin(s);
    score_to_p(s, gate, carry, 0, rows.first + thread_row);
    pack_scores(s, p);

    int tile = 0;
    uint32_t works = 1;
    for (;; ++at.count) {
      const bool ends = tile + 1 == rows.tiles;
      if (ends) {
        index = shared.take_work(works);
        if (index < 0) break;
        shared.query_ring.wait_full({works});
        load_query(query);
        shared.query_ring.release({works});
      }
      const RingPosition<kConfig.stages> key_at{at.count + 1};
      shared.value_ring.wait_full(at);
      shared.key_ring.wait_full(key_at);
      take_turn();
      ptx::wgmma_fence();
      multiply_values(o, p, at.slot());
      ptx::wgmma_commit();
      multiply_keys(s, query, key_at.slot());
      ptx::wgmma_commit();
      pass_turn();
      ++tile;
      ptx::wgmma_wait<1>();
      shared.value_ring.release(at);
      ptx::wgmma_pin(o);
      if (ends) {
        store_out(o, kConfig.gated ? params.gamma[rows.head] : 1.0f, rows.work, rows.head,
                  rows.first);
#pragma unroll
        for (float& x : o) x = 0.0f;
        rows = rows_of(index);
        gate = make_gate(params.sigma[rows.head], params.alpha[rows.head], params.scale);
        carry[0] = carry[1] = {};
        tile = 0;
        ++works;
      }
      ptx::wgmma_wait<0>();
      shared.key_ring.release(key_at);
      ptx::wgmma_pin(s);
      score_to_p(s, gate, carry, tile, rows.first + thread_row);
      pack_scores(s, p);
    }
    shared.value_ring.wait_full(at);
    take_turn();
    ptx::wgmma_fence();
    multiply_values(o, p, at.slot());
    ptx::wgmma_commit();
    pass_turn();
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(o);
    store_out(o, kConfig.gated ? params.gamma[rows.head] : 1.0f, rows.work, rows.head, rows.first);
  }

  __device__ __forceinline__ void run() {
    // The last warpgroup hands the first turn to the first.
    if (group == kConfig.consumers - 1) pass_turn();
    if constexpr (kConfig.schedule == Schedule::kLinked) {
      run_linked();
      return;
    }
    int index;
    for (uint32_t n = 0; (index = shared.take_work(n)) >= 0; ++n) {
      attend(work_at(params.shape, index), n);
    }
  }
};

}  // namespace asynct::bench
