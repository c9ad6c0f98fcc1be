// The host's side of an elementwise launch: element type, vector or scalar, grid, errors.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "asynct/params.h"
#include "asynct/row_grid.h"
#include "asynct/vector.cuh"

namespace asynct {

inline void Check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
  }
}

inline int64_t ElementSize(DataType dtype) { return dtype == DataType::kFloat32 ? 4 : 2; }

// Whether 16-byte accesses are aligned everywhere in a view, given its address and strides.
template <class... Strides>
bool Aligned(DataType dtype, const void* data, Strides... strides) {
  return reinterpret_cast<uintptr_t>(data) % kVectorBytes == 0 &&
         ((strides * ElementSize(dtype) % kVectorBytes == 0) && ...);
}

inline bool Aligned(DataType dtype, const DyHTParams& dyht) {
  const auto aligned = [](const Parameter& parameter) {
    return parameter.stride == 0 || Aligned(parameter.dtype, parameter.data);
  };
  return aligned(dyht.alpha) && aligned(dyht.gamma);
}

// Enqueues `kernel(params)` over [rows, channels] in vectors of kSize channels.
template <class Params>
void LaunchRows(const char* name, void (*kernel)(Params), const Params& params, int64_t rows,
                int64_t vectors, cudaStream_t stream) {
  if (rows == 0 || vectors == 0) return;
  int device = 0;
  int multiprocessors = 0;
  Check(cudaGetDevice(&device), name);
  Check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), name);
  const RowGrid grid = PlanRows(rows, vectors, multiprocessors);
  kernel<<<dim3(grid.column_blocks, grid.row_blocks), dim3(grid.column_threads, grid.row_threads),
           0, stream>>>(params);
  Check(cudaGetLastError(), name);
}

template <class T, int kSize>
struct Element {
  using Type = T;
  static constexpr int kVectorSize = kSize;
};

template <class T, class Function>
void DispatchVector(bool vector, Function function) {
  if (vector) {
    function(Element<T, kVectorBytes / sizeof(T)>{});
  } else {
    function(Element<T, 1>{});
  }
}

// Calls function(Element<T, kSize>{}) for the dtype's T, and 16 bytes or one element a vector.
template <class Function>
void Dispatch(DataType dtype, bool vector, Function function) {
  switch (dtype) {
    case DataType::kFloat32: return DispatchVector<float>(vector, function);
    case DataType::kFloat16: return DispatchVector<__half>(vector, function);
    case DataType::kBFloat16: return DispatchVector<__nv_bfloat16>(vector, function);
  }
}

}  // namespace asynct
