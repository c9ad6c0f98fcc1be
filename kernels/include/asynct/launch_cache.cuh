// The host's side of a launch that writes to a paged cache: element types, vector or scalar.
#pragma once

#include <cuda_fp8.h>

#include "asynct/cache.h"
#include "asynct/launch_rows.cuh"

namespace asynct {

inline bool Aligned(DataType dtype, const HeadsView& view) {
  return Aligned(dtype, view.data, view.token_stride, view.head_stride);
}

inline bool Aligned(const CacheWriteParams& params) {
  // A vector of a cache in fp8 is half as long, and its strides count elements of half the size.
  const auto cache = [&](const CacheView& view) {
    return Aligned(params.dtype, view.data, view.block_stride, view.slot_stride, view.head_stride);
  };
  return Aligned(params.dtype, params.fresh.key) && Aligned(params.dtype, params.fresh.value) &&
         cache(params.cache.key) && cache(params.cache.value);
}

// Calls function(Element<T, kSize>{}, Stored{}) for the types of the rows and of the cache.
template <class T, class Function>
void DispatchStored(DataType stored, bool vector, Function function) {
  DispatchVector<T>(vector, [&](auto element) {
    if (stored == DataType::kFloat8E4M3) {
      function(element, __nv_fp8_e4m3{});
    } else {
      function(element, T{});
    }
  });
}

template <class Function>
void DispatchCache(const CacheWriteParams& params, bool vector, Function function) {
  if (params.dtype == DataType::kBFloat16) {
    DispatchStored<__nv_bfloat16>(params.cache.dtype, vector, function);
  } else {
    DispatchStored<__half>(params.cache.dtype, vector, function);
  }
}

}  // namespace asynct
