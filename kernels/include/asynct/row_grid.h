// How the elementwise kernels share a matrix among threads. A thread keeps its columns (one vector)
// and walks down the rows, so that it loads the per-channel parameters once.
#pragma once

#include <algorithm>
#include <cstdint>

namespace asynct {

constexpr int kThreadsPerBlock = 256;
constexpr int kFewThreadsPerBlock = 64;
// Resident together, by __launch_bounds__, which leaves 80 registers a thread: a vector of 8 channels
// with two DyHTs, and 64 bytes on their way, 48 KiB a multiprocessor.
constexpr int kBlocksPerMultiprocessor = 3;

struct RowGrid {
  int64_t column_blocks;   // gridDim.x
  int64_t row_blocks;      // gridDim.y
  int64_t column_threads;  // blockDim.x, one vector of columns each
  int64_t row_threads;     // blockDim.y
};

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The grid for `rows` > 0 rows of `vectors` > 0 vectors: at most one wave of blocks (unless the
// columns alone need more), every one with nearly the same number of rows. Of a small matrix the
// blocks are small, so that every multiprocessor has a part of it.
constexpr RowGrid PlanRows(int64_t rows, int64_t vectors, int multiprocessors) {
  int64_t threads = kThreadsPerBlock;
  while (threads > kFewThreadsPerBlock && CeilDiv(rows * vectors, threads) < multiprocessors) {
    threads /= 2;
  }
  RowGrid grid{};
  grid.column_blocks = CeilDiv(vectors, threads);
  grid.column_threads = CeilDiv(vectors, grid.column_blocks);
  grid.row_threads = threads / grid.column_threads;
  const int64_t needed = CeilDiv(rows, grid.row_threads);
  const int64_t wave = int64_t{kBlocksPerMultiprocessor} * multiprocessors;
  const int64_t resident = std::max<int64_t>(wave / grid.column_blocks, 1);
  grid.row_blocks = CeilDiv(needed, CeilDiv(needed, resident));
  return grid;
}

}  // namespace asynct
