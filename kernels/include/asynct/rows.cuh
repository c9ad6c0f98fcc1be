// The device's half of row_grid.h.
#pragma once

#include <cstdint>

#include "asynct/row_grid.h"

namespace asynct {

// The index of this thread's vector of columns; it may lie past the last one.
__device__ __forceinline__ int ThreadVector() { return blockIdx.x * blockDim.x + threadIdx.x; }

// Calls finish(row, load(row)) for each of this thread's rows; the loads of kRowsInFlight rows are
// issued before the first of them is used, and prepare() is called while the first ones are on
// their way.
template <int kRowsInFlight, class Load, class Prepare, class Finish>
__device__ __forceinline__ void ForRows(int64_t rows, Load load, Prepare prepare, Finish finish) {
  const int64_t step = int64_t{gridDim.y} * blockDim.y;
  decltype(load(rows)) loaded[kRowsInFlight];
  const auto load_from = [&](int64_t row) {
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      if (row + i * step < rows) loaded[i] = load(row + i * step);
    }
  };
  int64_t row = int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
  load_from(row);
  prepare();
  while (row < rows) {
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      if (row + i * step < rows) finish(row + i * step, loaded[i]);
    }
    row += kRowsInFlight * step;
    load_from(row);
  }
}

}  // namespace asynct
