// Every row block of every head group comes up exactly once, the heavy ones of a section first.
#include "work.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <tuple>

using asynct::bench::Shape;
using asynct::bench::Work;

namespace {

void require(bool condition, const char* what, const Shape& s) {
  if (condition) return;
  std::fprintf(stderr, "%s: batch %d length %d heads %d/%d row_block %d group %d section %d\n", what,
               s.batch, s.length, s.heads, s.kv_heads, s.row_block, s.head_group, s.section);
  std::exit(1);
}

void check(const Shape& shape) {
  std::map<std::tuple<int, int, int>, int> seen;
  int previous_row = 0;
  for (int i = 0; i < shape.works(); ++i) {
    const Work work = asynct::bench::work_at(shape, i);
    require(work.request < shape.batch && work.head < shape.heads && work.row < shape.length,
            "out of range", shape);
    require(work.head % shape.head_group == 0, "head group split", shape);
    require(work.kv_head == work.head / (shape.heads / shape.kv_heads), "wrong KV head", shape);
    const bool new_section = i % (shape.section * shape.row_blocks()) == 0;
    require(new_section || work.row <= previous_row, "light before heavy", shape);
    previous_row = work.row;
    ++seen[{work.request, work.head, work.row}];
  }
  require(static_cast<int>(seen.size()) == shape.works(), "a work comes up twice", shape);
}

}  // namespace

int main() {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int i = 0; i < 300; ++i) {
    const int group = between(1, 4);
    const int kv_heads = between(1, 8);
    const int head_group = group % 2 == 0 ? between(1, 2) : 1;
    check({between(1, 20), between(1, 3000), kv_heads * group, kv_heads, 64 * between(1, 3),
           head_group, between(1, 40)});
  }
  return 0;
}
