// PlanRows: every vector of every row has exactly one thread, and blocks do equal work.

#include "asynct/row_grid.h"

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

int failures = 0;

void Expect(bool condition, const char* what, int64_t rows, int64_t vectors, int multiprocessors) {
  if (condition) return;
  std::printf("%s: rows %ld, vectors %ld, multiprocessors %d\n", what, static_cast<long>(rows),
              static_cast<long>(vectors), multiprocessors);
  ++failures;
}

// The numbers of blocks and threads are what the kernels' index arithmetic needs.
void CheckShape(int64_t rows, int64_t vectors, int multiprocessors) {
  const asynct::RowGrid grid = asynct::PlanRows(rows, vectors, multiprocessors);
  const auto expect = [&](bool condition, const char* what) {
    Expect(condition, what, rows, vectors, multiprocessors);
  };
  const int64_t threads = grid.column_threads * grid.row_threads;
  expect(threads >= 1 && threads <= asynct::kThreadsPerBlock, "threads in a block");
  expect(grid.column_blocks * grid.column_threads >= vectors, "all columns");
  expect((grid.column_blocks - 1) * grid.column_threads < vectors, "no idle block of columns");
  expect(grid.row_blocks >= 1 && grid.row_blocks <= 65535, "gridDim.y");
  expect((grid.row_blocks - 1) * grid.row_threads < rows, "no idle block of rows");
  const int64_t wave = int64_t{asynct::kBlocksPerMultiprocessor} * multiprocessors;
  expect(grid.row_blocks == 1 || grid.row_blocks * grid.column_blocks <= wave, "one wave");
}

// Walks the threads as rows.cuh does.
void CheckCover(int64_t rows, int64_t vectors, int multiprocessors) {
  const asynct::RowGrid grid = asynct::PlanRows(rows, vectors, multiprocessors);
  std::vector<int> visits(rows * vectors);
  for (int64_t vector = 0; vector < grid.column_blocks * grid.column_threads; ++vector) {
    if (vector >= vectors) continue;
    const int64_t step = grid.row_blocks * grid.row_threads;
    for (int64_t first = 0; first < step; ++first) {
      for (int64_t row = first; row < rows; row += step) ++visits[row * vectors + vector];
    }
  }
  for (const int count : visits) {
    Expect(count == 1, "visits", rows, vectors, multiprocessors);
    if (count != 1) return;
  }
}

}  // namespace

int main() {
  for (const int multiprocessors : {1, 20, 132}) {
    for (const int64_t vectors : {1, 2, 16, 17, 255, 256, 257, 384, 768, 4096, 300000}) {
      for (const int64_t rows : {1, 2, 31, 32, 33, 500, 8192, 1 << 30}) {
        CheckShape(rows, vectors, multiprocessors);
        if (rows * vectors <= 1 << 20) CheckCover(rows, vectors, multiprocessors);
      }
    }
  }
  // The shapes that the comments and the log speak of, on an H200.
  static_assert(asynct::PlanRows(32, 256, 132).column_threads == 64);  // 128 blocks
  static_assert(asynct::PlanRows(32, 768, 132).column_threads == 128);  // 192 blocks
  static_assert(asynct::PlanRows(8192, 256, 132).row_blocks == 391);  // 21 rows each
  static_assert(asynct::PlanRows(8192, 16, 132).row_threads == 16);
  return failures == 0 ? 0 : 1;
}
