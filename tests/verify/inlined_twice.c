// A line of an inlined function that in one copy stands in the middle of a block, and in another
// one, which is never executed, ends one: gcov 12 has the second copy's count for it.
struct Pair {
  int t;
};
static inline __attribute__((always_inline)) int step(struct Pair* q, int n, int const steps) {
  struct Pair* const p = q;
  int a = n;
  int const s = steps ? (p->t + !(p->t) + 1) : 2;  // 46 times; gcov says never
  int b = a + s;
  return b;
}
int plain(struct Pair* q, int n) { return step(q, n, 0); }
int other(struct Pair* q, int n) { return step(q, n, 1); }
int main(int c, char** v) {
  struct Pair p = {c};
  int sum = 0;
  (void)v;
  for (int i = 0; i < 46; ++i) sum += plain(&p, i);
  if (c > 5) sum += other(&p, 3);
  return sum == 0;
}
