// The host's entry points, one a kernel family. Each enqueues one kernel on `stream` (none if there
// is nothing to write) and throws std::runtime_error with CUDA's message if the launch fails.
#pragma once

#include <cuda_runtime_api.h>

#include "asynct/attention.h"
#include "asynct/cache.h"
#include "asynct/params.h"

namespace asynct {

void UclipNorm(const UclipNormParams& params, cudaStream_t stream);
void FusedAddUclipNorm(const FusedAddUclipNormParams& params, cudaStream_t stream);
void QkUclipNorm(const QkUclipNormParams& params, cudaStream_t stream);
void PostAttnPreMlpUclipOut(const PostAttnPreMlpUclipOutParams& params, cudaStream_t stream);
void ReluAndMul(const ReluAndMulParams& params, cudaStream_t stream);

void HP1PrefillMma(const AttentionParams& params, cudaStream_t stream);
void ReshapeAndCache(const CacheWriteParams& params, cudaStream_t stream);
void GatherPages(const PageGatherParams& params, cudaStream_t stream);

}  // namespace asynct
