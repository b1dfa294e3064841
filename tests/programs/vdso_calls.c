// Claim: procedures of the kernel's own library, which lies apart from all other code, are called
// and come back like any other, and their instructions are counted.
// build: gcc,clang O0,O2 pie,nopie nolibc
// ci: gcc O2 pie nolibc; clang O0 nopie nolibc
#include "include/nolibc.h"

typedef long GetCpu(unsigned* cpu, unsigned* node, void* unused);

static NOINLINE const char* kernel_library(char** envp) {
  while (*envp != NULL) ++envp;
  const Elf64_auxv_t* entry = (const Elf64_auxv_t*)(envp + 1);
  while (entry->a_type != AT_NULL && entry->a_type != AT_SYSINFO_EHDR) ++entry;
  CHECK(entry->a_type == AT_SYSINFO_EHDR);
  return (const char*)entry->a_un.a_val;
}

static int ends_in(const char* name, const char* end) {
  while (*name != 0) ++name;
  const char* last = end;
  while (*last != 0) ++last;
  for (; last >= end; --name, --last) {
    if (*name != *last) return 0;
  }
  return 1;
}

static NOINLINE GetCpu* find(const char* library) {
  const Elf64_Ehdr* header = (const Elf64_Ehdr*)library;
  const Elf64_Shdr* sections = (const Elf64_Shdr*)(library + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_DYNSYM) continue;
    const Elf64_Sym* symbols = (const Elf64_Sym*)(library + sections[i].sh_offset);
    const char* names = library + sections[sections[i].sh_link].sh_offset;
    for (size_t s = 1; s < sections[i].sh_size / sizeof *symbols; ++s) {
      if (ends_in(names + symbols[s].st_name, "getcpu")) {
        return (GetCpu*)(library + symbols[s].st_value);
      }
    }
  }
  return NULL;
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv;
  GetCpu* get_cpu = find(kernel_library(envp));
  CHECK(get_cpu != NULL);
  HIDE(get_cpu);
  long sum = 0;
  for (int i = 0; i < 150; ++i) {  // it comes back to one place and the other by turns
    sum += get_cpu(NULL, NULL, NULL) + 1;
    sum -= get_cpu(NULL, NULL, NULL) - 1;
  }
  print_number("sum", sum);
  return 0;
}
