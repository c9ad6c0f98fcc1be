// Writes down the row blocks of a batch, in the order in which they are worked on.
#include "asynct/launch_rows.cuh"
#include "asynct/ptx/dependent_launch.cuh"
#include "wgmma_launch.h"

namespace asynct::prefill_wgmma {
namespace {

constexpr int kScheduleThreads = 1024;

struct ScheduleParams {
  const int32_t* query_start_loc;  // [requests + 1]
  const int32_t* seq_lens;         // [requests]
  int requests;
  int row_block;
  int section_keys;
  ScheduleHeader* schedule;
};

// Sum (or, with `largest`, maximum) over the lanes up to this one.
__device__ __forceinline__ int ScanWarp(int value, bool largest = false) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int left = __shfl_up_sync(~0u, value, distance);
    if (threadIdx.x % 32 < distance) continue;
    value = largest ? max(value, left) : value + left;
  }
  return value;
}

// By one warp, in place: row blocks become those of the requests before, keys the section's first
// request.
__device__ __forceinline__ void ScanRequests(int* blocks, int* keys, int requests,
                                             int section_keys) {
  const int lane = threadIdx.x % 32;
  int blocks_before = 0;
  int keys_before = 0;
  int last_section = -1;
  int last_start = 0;
  for (int first = 0; first < requests; first += 32) {
    const int request = first + lane;
    const bool valid = request < requests;
    const int own_blocks = valid ? blocks[request] : 0;
    const int own_keys = valid ? keys[request] : 0;
    const int block_sum = blocks_before + ScanWarp(own_blocks);
    const int key_sum = keys_before + ScanWarp(own_keys);
    const int section = (key_sum - own_keys) / section_keys;
    const int left = __shfl_up_sync(~0u, section, 1);
    const bool starts = section != (lane == 0 ? last_section : left);
    const int start = max(last_start, ScanWarp(starts ? request : 0, true));
    if (valid) {
      blocks[request] = block_sum - own_blocks;
      keys[request] = start;
    }
    blocks_before = __shfl_sync(~0u, block_sum, 31);
    keys_before = __shfl_sync(~0u, key_sum, 31);
    last_section = __shfl_sync(~0u, section, 31);
    last_start = __shfl_sync(~0u, start, 31);
  }
  if (lane == 0) blocks[requests] = blocks_before;
}

__global__ void __launch_bounds__(kScheduleThreads) ScheduleKernel(ScheduleParams p) {
  __shared__ int first_block[kMaxRequests + 1];
  __shared__ int section_start[kMaxRequests];
  ptx::launch_dependents();
  for (int r = threadIdx.x; r < p.requests; r += kScheduleThreads) {
    first_block[r] = RowBlocksOf(p.query_start_loc[r + 1] - p.query_start_loc[r], p.row_block);
    section_start[r] = p.seq_lens[r];
  }
  __syncthreads();
  if (threadIdx.x < 32) ScanRequests(first_block, section_start, p.requests, p.section_keys);
  __syncthreads();

  const Requests requests = {p.requests, first_block, section_start};
  const int count = first_block[p.requests];
  RowBlock* blocks = reinterpret_cast<RowBlock*>(p.schedule + 1);
  for (int i = threadIdx.x; i < count; i += kScheduleThreads) {
    const int request = RequestOf(requests, i);
    const int later = first_block[request + 1] - 1 - i;
    const int first_query = p.query_start_loc[request];
    blocks[TurnOf(requests, request, later)] =
        MakeRowBlock(request, first_query, p.query_start_loc[request + 1] - first_query,
                     p.seq_lens[request], i - first_block[request], p.row_block);
  }
  if (threadIdx.x == 0) *p.schedule = {count, 0};
}

}  // namespace

void LaunchSchedule(const AttentionParams& params, int row_block, ScheduleHeader* schedule,
                    cudaStream_t stream) {
  ScheduleKernel<<<1, kScheduleThreads, 0, stream>>>(
      {params.query_start_loc, params.seq_lens, params.requests, row_block,
       SectionKeys(params.kv_heads, params.head_dim), schedule});
  Check(cudaGetLastError(), "hp1_prefill_wgmma's schedule");
}

}  // namespace asynct::prefill_wgmma
