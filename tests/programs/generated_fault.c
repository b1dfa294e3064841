// Claim: a fault in generated code shows the handler the program's own address, and the code goes on
// where the handler says; with the alignment check flag set no check of ours faults.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O1 nopie static
// flags: -D_GNU_SOURCE
// oracle: output
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

static unsigned char* code;

static void handler(int number, siginfo_t* info, void* context) {
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  printf("%d at +%ld, address %p\n", number, (long)(registers[REG_RIP] - (long)code),
         info->si_addr);
  registers[REG_RIP] += 2;
}

int main(void) {
  struct sigaction action = {0};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, 0);
  code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const unsigned char text[] = {
      0x56, 0x31, 0xf6, 0x8b, 0x06,                    // push rsi; xor esi, esi; mov eax, [rsi]
      0x9c, 0x81, 0x0c, 0x24, 0x00, 0x00, 0x04, 0x00,  // pushf; or dword [rsp], AC
      0x9d, 0x75, 0x00, 0x90, 0x90,                    // popf; jne next; nop; nop
      0x9c, 0x81, 0x24, 0x24, 0xff, 0xff, 0xfb, 0xff,  // pushf; and dword [rsp], ~AC
      0x9d, 0xb8, 7,    0,    0,    0,    0x5e, 0xc3,  // popf; mov eax, 7; pop rsi; ret
  };
  memcpy(code, text, sizeof text);
  int sum = 0;
  for (int i = 0; i < 3; i++) sum += ((int (*)(void))code)();
  printf("%d\n", sum);
  return 0;
}
