// Claim: the program's own image, copied to where every address is alike to the original's in its
// low 32 bits, after branches, switches and returns of the original have been made.
// build: gcc,clang O0,O2,O3 pie,nopie dynamic; gcc,clang O2 nopie static
// ci: gcc O2 pie dynamic
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define PLACE 0x213400000000ul
typedef int (*operation)(int);
extern char __executable_start[], etext[], end[];

// 1 in the copy, 0 in the original: whoever confuses the two gets another sum.
#define IN_COPY                                        \
  ({                                                   \
    uintptr_t here;                                    \
    __asm__ volatile("lea 0(%%rip), %0" : "=r"(here)); \
    (int)(here >> 32 == PLACE >> 32);                  \
  })

#define OP(n)                                         \
  __attribute__((noinline)) static int op##n(int x) { \
    return x * n + (x >> (n & 7)) + IN_COPY;          \
  }
OP(1)
OP(2)
OP(3) OP(4) OP(5) OP(6) OP(7) OP(8) OP(9) OP(10)

    // Of the copy, if it executes there: addresses relative to the instruction.
    static operation choose(int i) {
  switch (i % 10) {
    case 0:
      return op1;
    case 1:
      return op2;
    case 2:
      return op3;
    case 3:
      return op4;
    case 4:
      return op5;
    case 5:
      return op6;
    case 6:
      return op7;
    case 7:
      return op8;
    case 8:
      return op9;
    default:
      return op10;
  }
}

// One branch, which is led to the originals first.
__attribute__((noinline)) static int call(operation f, int x) {
  return f(x) + 1;
}

// A dispatch with a jump of its own behind each step.
__attribute__((noinline)) static int steps(const unsigned char* code, int x) {
  static const int distance[] = {1, 2, 3, 5, 8, 13, 21};
  for (;; code++) {
    switch (*code) {
      case 0:
        return x;
      case 1:
        x += distance[x & 3];
        break;
      case 2:
        x ^= 0x55;
        break;
      case 3:
        x = op3(x) & 0xffff;
        break;
      case 4:
        x -= 7;
        break;
      case 5:
        x <<= 1;
        break;
      case 6:
        x >>= 2;
        break;
      case 7:
        x = call(op7, x) & 0xffff;
        break;
      case 8:
        x |= 1;
        break;
      case 9:
        x = ~x & 0xfff;
        break;
      case 10:
        x *= 3;
        break;
      default:
        x = op10(x) & 0xff;
        break;
    }
  }
}

__attribute__((noinline)) static int work(int i) {
  static const unsigned char code[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 6, 3, 1, 0};
  return steps(code + i % 5, i) + call(choose(i), i) + (i & 3 ? work(i >> 1) : i);
}

// Jumps to and fro between the original and the copy.
#define GO                    \
  if (++i == steps) return x; \
  goto*(void*)((uintptr_t)labels[(x + i) % 6u] + (i & 1 ? apart : 0))
#define HOP(name)                                                                           \
  __attribute__((noinline)) static int name(int steps, uintptr_t apart) {                   \
    static void* const labels[] = {&&first, &&second, &&third, &&fourth, &&fifth, &&sixth}; \
    int x = steps, i = 0;                                                                   \
    GO;                                                                                     \
  first:                                                                                    \
    x += 3;                                                                                 \
    x += IN_COPY;                                                                           \
    GO;                                                                                     \
  second:                                                                                   \
    x ^= 21;                                                                                \
    x += IN_COPY;                                                                           \
    GO;                                                                                     \
  third:                                                                                    \
    x += i;                                                                                 \
    x += IN_COPY;                                                                           \
    GO;                                                                                     \
  fourth:                                                                                   \
    x -= 5;                                                                                 \
    x &= 0xfff;                                                                             \
    x += IN_COPY;                                                                           \
    GO;                                                                                     \
  fifth:                                                                                    \
    x <<= 1;                                                                                \
    x += IN_COPY;                                                                           \
    GO;                                                                                     \
  sixth:                                                                                    \
    x >>= 1;                                                                                \
    x += IN_COPY;                                                                           \
    GO;                                                                                     \
  }
HOP(hop)
HOP(hop_later)

// The same with jumps behind which the flags can be made again: they keep no register.
#define HOP_FLAGS(name)                                                                           \
  __asm__(".text\n" #name                                                                         \
          ": xor %eax, %eax\n"                                                                    \
          "1: sub $1, %edi\n"                                                                     \
          "js 9f\n"                                                                               \
          "xor %r8d, %r8d\n"                                                                      \
          "test $1, %edi\n"                                                                       \
          "cmovnz %rsi, %r8\n"                                                                    \
          "add %rdx, %r8\n"                                                                       \
          "mov %edi, %ecx\n"                                                                      \
          "shr $1, %ecx; and $3, %ecx\n"                                                          \
          "movslq (%rdx,%rcx,4), %rcx\n"                                                          \
          "add %r8, %rcx\n"                                                                       \
          "jmp *%rcx\n"                                                                           \
          "2: add $3, %eax; jmp 6f\n"                                                             \
          "3: xor $21, %eax; jmp 6f\n"                                                            \
          "4: lea (%rax,%rdi), %eax; jmp 6f\n"                                                    \
          "5: shl $1, %eax\n"                                                                     \
          "6: lea 6b(%rip), %r9; shr $32, %r9; cmp $0x2134, %r9d; jne 1b; add $1, %eax; jmp 1b\n" \
          "9: ret\n"                                                                              \
          ".section .rodata\n"                                                                    \
          ".balign 4\n" #name "_ways: .long 2b - .L" #name ", 3b - .L" #name ", 4b - .L" #name    \
          ", 5b - .L" #name                                                                       \
          "\n"                                                                                    \
          ".set .L" #name ", " #name                                                              \
          "_ways\n"                                                                               \
          ".text\n");                                                                             \
  int name(int steps, uintptr_t apart, const int* ways);                                          \
  extern const int name##_ways[]
HOP_FLAGS(hop_flags);
HOP_FLAGS(hop_flags_later);

static char* copy_of_image(void) {
  const uintptr_t begin = (uintptr_t)__executable_start & ~4095ul;
  const uintptr_t text_end = ((uintptr_t)etext + 4095) & ~4095ul;
  const uintptr_t image_end = ((uintptr_t)end + 4095) & ~4095ul;
  const uintptr_t there = PLACE | (uint32_t)begin;
  char* copy = mmap((void*)there, image_end - begin, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (copy != (char*)there) return NULL;
  memcpy(copy, (char*)begin, image_end - begin);
  if (mprotect(copy, text_end - begin, PROT_READ | PROT_EXEC) != 0) return NULL;
  return copy - begin;
}

int main(void) {
  int sum = 0;
  for (int i = 0; i < 60; i++)
    sum += work(i) + hop(20 + i % 3, 0) + hop_flags(9, 0, hop_flags_ways);
  const uintptr_t apart = (uintptr_t)copy_of_image();
  if (apart == 0) return 1;
  const operation other = (operation)((uintptr_t)work + apart);
  for (int i = 0; i < 60; i++) {
    sum += work(i) * 2 + other(i + 1) * 3 + hop(15 + i % 3, apart) - hop_later(12 + i % 4, apart) +
           hop_flags(11 + i % 5, apart, hop_flags_ways) -
           hop_flags_later(11 + i % 5, apart, hop_flags_later_ways);
    const operation f = choose(i);
    sum += call(f, i) - call((operation)((uintptr_t)f + apart), i + 2);
  }
  printf("%d %d\n", sum, (uint32_t)apart == 0);
  return 0;
}
