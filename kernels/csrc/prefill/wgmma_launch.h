// Launches that make up the wgmma prefill, each in a file of its own.
#pragma once

#include <cuda_runtime_api.h>

#include "wgmma_shared.cuh"

namespace asynct::prefill_wgmma {

// Fills the workspace: the header, then the row blocks in their order.
void LaunchSchedule(const AttentionParams& params, int row_block, ScheduleHeader* schedule,
                    cudaStream_t stream);

// The attention, for queries of type T, by `blocks` thread blocks. The kernel ahead in the stream
// is the schedule's, whose end it waits for itself.
template <class T>
void LaunchAttention(const Params& params, int head_dim, bool fast_gate, int blocks,
                     cudaStream_t stream);

}  // namespace asynct::prefill_wgmma
