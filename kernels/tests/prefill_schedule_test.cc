// The row blocks of a prefill come up once each, heavy ones of a section first, and a tile's keys
// stand where the scores, the copy engine's boxes and the mask look for them.
#include "asynct/prefill_schedule.h"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace {

using namespace asynct::prefill_wgmma;

void Expect(bool condition, const char* what, int a, int b) {
  if (condition) return;
  std::printf("%s: %d, %d\n", what, a, b);
  std::exit(1);
}

struct Batch {
  std::vector<int> queries;
  std::vector<int> keys;
};

void CheckSchedule(const Batch& batch, int row_block, int section_keys) {
  const int count = static_cast<int>(batch.queries.size());
  std::vector<int> first_block(count + 1, 0);
  std::vector<int> section_start(count, 0);
  int keys_before = 0;
  int tokens = 0;
  for (int r = 0; r < count; ++r) {
    first_block[r + 1] = first_block[r] + RowBlocksOf(batch.queries[r], row_block);
    const int section = keys_before / section_keys;
    const bool starts = r == 0 || section != (keys_before - batch.keys[r - 1]) / section_keys;
    section_start[r] = starts ? r : section_start[r - 1];
    keys_before += batch.keys[r];
    tokens += batch.queries[r];
  }
  const Requests requests = {count, first_block.data(), section_start.data()};
  const int total = first_block[count];
  Expect(total <= MostRowBlocks(tokens, count, row_block), "more row blocks than said", total,
         count);

  std::vector<int> request_at(total, -1);
  std::vector<int> later_at(total);
  for (int i = 0; i < total; ++i) {
    const int request = RequestOf(requests, i);
    Expect(first_block[request] <= i && i < first_block[request + 1], "wrong request", i, request);
    const int later = first_block[request + 1] - 1 - i;
    const int turn = TurnOf(requests, request, later);
    Expect(turn >= 0 && turn < total && request_at[turn] < 0, "turn taken twice", i, turn);
    request_at[turn] = request;
    later_at[turn] = later;
  }
  for (int turn = 1; turn < total; ++turn) {
    const int section = section_start[request_at[turn]];
    const int before = section_start[request_at[turn - 1]];
    Expect(section >= before, "sections mixed", turn, request_at[turn]);
    Expect(section != before || later_at[turn] >= later_at[turn - 1], "light before heavy", turn,
           request_at[turn]);
  }

  int first_query = 0;
  for (int r = 0; r < count; ++r) {
    int next = 0;
    for (int within = 0; within < first_block[r + 1] - first_block[r]; ++within) {
      const RowBlock block =
          MakeRowBlock(r, first_query, batch.queries[r], batch.keys[r], within, row_block);
      Expect(block.token == first_query + next && block.rows >= 1 && block.rows <= row_block,
             "queries left out", r, within);
      Expect(block.position == batch.keys[r] - batch.queries[r] + next, "wrong position", r,
             within);
      for (int tile_keys : {32, 64, 128}) {
        const int last = block.position + block.rows - 1;  // key that the last query sees
        const int tiles = TilesOf(block, tile_keys);
        const bool fewest = tiles == 1 || (tiles - 1) * tile_keys <= last;
        Expect(tiles >= 1 && tiles * tile_keys > last && fewest, "wrong number of tiles", r,
               within);
      }
      next += block.rows;
    }
    Expect(next == batch.queries[r], "queries left over", r, next);
    first_query += batch.queries[r];
  }
}

void CheckTileRows(int tile_keys, int run) {
  std::vector<bool> taken(tile_keys, false);
  for (int key = 0; key < tile_keys; ++key) {
    const int row = TileRowOf(key, run);
    Expect(row >= 0 && row < tile_keys && !taken[row], "row taken twice", key, row);
    taken[row] = true;
  }
  // A box of the copy engine fills lines with e innermost, then q, then j.
  for (int box = 0; box < tile_keys; box += 4 * run) {
    for (int line = 0; line < 4 * run; ++line) {
      const int e = line % 2;
      const int q = line / 2 % 4;
      const int j = line / 8;
      const int key = box + run * q + 2 * j + e;
      Expect(TileRowOf(key, run) == box + line, "box out of order", run, line);
    }
  }
  // Lane q of four has column 2 q + e of each eight; over a group of 4 * run these are its run.
  for (int column = 0; column < tile_keys; ++column) {
    const int within = column % (4 * run);
    const int key = column - within + within % 8 / 2 * run + within / 8 * 2 + within % 2;
    Expect(TileRowOf(key, run) == column, "scores out of order", run, column);
  }
}

// A feeding warp copies `rows` keys of its half tile at a time, and finds a key's row, and its last
// three bits for the swizzle, from those of the half, of the key and of the lane apart.
void CheckCopies(int tile_keys, int rows) {
  const int run = tile_keys / 4;
  for (int half = 0; half < tile_keys; half += tile_keys / 2) {
    for (int key = 0; key < tile_keys / 2; key += rows) {
      for (int lane_row = 0; lane_row < rows; ++lane_row) {
        const int lane = TileRowOf(half, run) + TileRowOf(lane_row, run);
        const int own = TileRowOf(key, run);
        const int row = TileRowOf(half + key + lane_row, run);
        Expect(lane + own == row && ((lane ^ own) & 7) == (row & 7) && (own & 7) < 4,
               "a copy goes astray", key, lane_row);
      }
    }
  }
}

}  // namespace

int main() {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int i = 0; i < 400; ++i) {
    Batch batch;
    const int most = i % 2 ? 40 : 700;
    for (int r = between(1, 60); r > 0; --r) {
      const int queries = between(0, 4) ? between(0, most) : 1;
      batch.queries.push_back(queries);
      batch.keys.push_back(between(0, 3) ? queries + between(0, 2 * most) : between(0, queries));
    }
    CheckSchedule(batch, i % 3 ? 64 : 128, between(1, 8 * most));
  }
  for (int tile_keys : {32, 64, 128}) {
    CheckTileRows(tile_keys, tile_keys / 4);
    for (int rows : {1, 2, 4}) CheckCopies(tile_keys, rows);
  }
  return 0;
}
