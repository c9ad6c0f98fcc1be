// Chooses the length of a step's segments and lists them (decode_schedule.h), on the device, so
// that a captured graph follows the lengths. One block: a warp a length, then a thread a request,
// the requests before it counted by a prefix sum.

#include "asynct/decode_schedule.h"
#include "asynct/launch.h"
#include "asynct/launch_rows.cuh"

namespace asynct {
namespace {

constexpr char kName[] = "hp1_decode_schedule";
constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr uint32_t kWarp = 0xffffffff;

struct Placed {
  int before;  // the sum over the threads before this one
  int total;   // over all threads
};

__device__ Placed place(int count) {
  __shared__ int warp_sums[kWarps];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  int sum = count;
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(kWarp, sum, step);
    if (lane >= step) sum += before;
  }
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  Placed placed = {sum - count, 0};
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) placed.before += warp_sums[w];
    placed.total += warp_sums[w];
  }
  __syncthreads();
  return placed;
}

static_assert(kWarps * kSegmentStep == kMaxSegmentKeys);

// The length with which the step takes the least time, and the list has room; of equal ones the
// longest.
__device__ int choose_segment_keys(const int32_t* query_start_loc, const int32_t* seq_lens,
                                   int requests, int stretches, int64_t capacity) {
  __shared__ int64_t costs[kWarps];
  const int warp = threadIdx.x / 32;
  const int keys = (warp + 1) * kSegmentStep;
  int segments = 0;
  int longest = 0;
  for (int request = threadIdx.x % 32; request < requests; request += 32) {
    if (query_start_loc[request + 1] <= query_start_loc[request]) continue;
    segments += SegmentsOf(seq_lens[request], keys);
    longest = max(longest, seq_lens[request]);
  }
  segments = __reduce_add_sync(kWarp, segments);
  longest = __reduce_max_sync(kWarp, longest);
  costs[warp] = segments <= capacity ? StepCost(segments, keys, longest, stretches) : INT64_MAX;
  __syncthreads();
  int best = kWarps - 1;
  for (int w = best - 1; w >= 0; --w) {
    if (costs[w] < costs[best]) best = w;
  }
  return (best + 1) * kSegmentStep;
}

__global__ void __launch_bounds__(kThreads)
    DecodeScheduleKernel(const int32_t* query_start_loc, const int32_t* seq_lens,
                         DecodeShape shape, int stretches, DecodeSchedule schedule) {
  const int requests = shape.requests;
  const int groups = HeadGroups(shape.heads, shape.kv_heads);
  for (int i = threadIdx.x; i < requests * groups; i += kThreads) schedule.finished[i] = 0;
  const int segment_keys =
      shape.segment_keys != 0 ? shape.segment_keys
                              : choose_segment_keys(query_start_loc, seq_lens, requests, stretches,
                                                    SegmentCapacity(shape));
  int listed = 0;
  int split = 0;
  for (int first = 0; first < requests; first += kThreads) {
    const int request = first + static_cast<int>(threadIdx.x);
    int token = 0, length = 0, segments = 0;
    if (request < requests) {
      token = query_start_loc[request];
      length = seq_lens[request];
      if (query_start_loc[request + 1] > token) {
        segments = SegmentsOf(length, segment_keys);
      }
    }
    const Placed placed = place(segments);
    DecodeSegment* own = schedule.segments + listed + placed.before;
    for (int s = 0; s < segments; ++s) {
      own[s] = {request, token, length, static_cast<uint16_t>(s), static_cast<uint16_t>(segments)};
    }
    listed += placed.total;
    split |= __syncthreads_or(segments > 1);
  }
  if (threadIdx.x == 0) {
    *schedule.count = {listed, static_cast<uint16_t>(segment_keys), static_cast<uint16_t>(split)};
  }
}

}  // namespace

void HP1DecodeSchedule(const int32_t* query_start_loc, const int32_t* seq_lens,
                       const DecodeShape& shape, void* workspace, cudaStream_t stream) {
  if (shape.requests == 0) return;
  int device = 0;
  int multiprocessors = 0;
  Check(cudaGetDevice(&device), kName);
  Check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), kName);
  DecodeScheduleKernel<<<1, kThreads, 0, stream>>>(query_start_loc, seq_lens, shape,
                                                   Stretches(shape, multiprocessors),
                                                   PlaceDecodeSchedule(workspace, shape));
  Check(cudaGetLastError(), kName);
}

}  // namespace asynct
