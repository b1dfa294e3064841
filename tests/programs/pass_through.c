// Claim: arguments, environment, working directory, standard input and auxv are as natively.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 nopie static; gcc O2 pie dynamic
// args: one "two words" "" --placement=blocks -- -o
// env: TALLY_TEST=yes EMPTY=
// stdin: first line\nsecond line\n
// expect: status=4
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

extern char** environ;

int main(int argc, char** argv) {
  for (int i = 1; i < argc; i++) printf("argument <%s>\n", argv[i]);
  for (char** e = environ; *e; e++) printf("environment %s\n", *e);
  char text[4096];
  char* name = strrchr(getcwd(text, sizeof text), '/');
  printf("folder %s\n", name);
  size_t n = fread(text, 1, sizeof text, stdin);
  printf("input %zu %.*s", n, (int)n, text);
  printf("same %d\n", strcmp((char*)getauxval(AT_EXECFN), argv[0]));
  printf("entry %d phdr %d\n", getauxval(AT_ENTRY) != 0, getauxval(AT_PHDR) != 0);
  return 4;
}
