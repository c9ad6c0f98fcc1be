// The host's entry points, one a kernel family. Each enqueues one kernel on `stream` (none if there
// is nothing to write) and throws std::runtime_error with CUDA's message if the launch fails.
#pragma once

#include <cuda_runtime_api.h>

#include "asynct/attention.h"
#include "asynct/cache.h"
#include "asynct/decode_schedule.h"
#include "asynct/params.h"

namespace asynct {

void UclipNorm(const UclipNormParams& params, cudaStream_t stream);
void FusedAddUclipNorm(const FusedAddUclipNormParams& params, cudaStream_t stream);
void QkUclipNorm(const QkUclipNormParams& params, cudaStream_t stream);
void PostAttnPreMlpUclipOut(const PostAttnPreMlpUclipOutParams& params, cudaStream_t stream);
void ReluAndMul(const ReluAndMulParams& params, cudaStream_t stream);
void LinearReluAndMul(const LinearReluAndMulParams& params, cudaStream_t stream);
void LinearAddUclip(const LinearAddUclipParams& params, cudaStream_t stream);

// Lists a step's segments in the workspace of LayOutDecode(shape).bytes; then any number of
// HP1DecodePaged of the same shape, one after another, may use it.
void HP1DecodeSchedule(const int32_t* query_start_loc, const int32_t* seq_lens,
                       const DecodeShape& shape, void* workspace, cudaStream_t stream);
// With `raw` the queries are as the projection wrote them, and the newest keys and values are not
// in the cache yet but go there. No request may read another's newest key.
void HP1DecodePaged(const AttentionParams& params, const RawStep* raw, const DecodeShape& shape,
                    void* workspace, cudaStream_t stream);
void HP1PrefillMma(const AttentionParams& params, cudaStream_t stream);
// Both enqueue two kernels. query has `tokens` rows, the workspace HP1PrefillWgmmaWorkspace bytes.
// The second reads K and V from `rows`, and from the cache only the scales.
int64_t HP1PrefillWgmmaWorkspace(int64_t tokens, int requests, int group);
void HP1PrefillWgmma(const AttentionParams& params, int64_t tokens, void* workspace,
                     cudaStream_t stream);
void HP1PrefillWgmma(const AttentionParams& params, const KeyValueRows& rows, int64_t tokens,
                     void* workspace, cudaStream_t stream);
void ReshapeAndCache(const CacheWriteParams& params, cudaStream_t stream);
void QkNormRopeCache(const QkNormRopeCacheParams& params, cudaStream_t stream);
void GatherPages(const AttentionParams& params, const GatheredPages& pages, cudaStream_t stream);

}  // namespace asynct
