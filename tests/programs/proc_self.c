// Claim: /proc/self/exe, comm and open files are the program's own; only TracerPid may differ.
// build: gcc,clang O2 pie,nopie static,dynamic
// ci: gcc O2 nopie static
// oracle: output
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int begins(const char* line, const char* with) {
  for (; *with; ++line, ++with)
    if (*line != *with) return 0;
  return 1;
}

// Lines about threads and signals.  Process numbers, sizes and times are longer or shorter from run
// to run: each place of the room is looked at once, so that no count depends on it.
static int print_status(void) {
  static char text[1 + 8192] = "\n";
  const int f = open("/proc/self/status", O_RDONLY);
  if (f < 0 || read(f, text + 1, sizeof text - 2) <= 0) return 0;
  close(f);
  for (int i = 1; i < (int)sizeof text; ++i) {
    const char* line = text + i;
    if (line[-1] != '\n') continue;
    if (begins(line, "SigQ")) continue;
    if (!begins(line, "Threads") && !begins(line, "Sig") && !begins(line, "Shd") &&
        !begins(line, "Seccomp:") && !begins(line, "NoNewPrivs"))
      continue;
    do putchar(*line);
    while (*line++ != '\n');
  }
  return 1;
}

int main(int argc, char** argv) {
  (void)argc;
  char path[4096] = "";
  if (readlink("/proc/self/exe", path, sizeof path - 1) < 0) return 1;
  printf("exe is argv[0]: %d\n", strcmp(path, argv[0]) == 0);
  FILE* f = fopen("/proc/self/comm", "r");
  if (!f || !fgets(path, sizeof path, f)) return 2;
  printf("comm %s", path);
  fclose(f);
  if (!print_status()) return 3;
  DIR* d = opendir("/proc/self/fd");
  int open_files = 0;
  for (struct dirent* e; d && (e = readdir(d));)
    if (e->d_name[0] != '.' && atoi(e->d_name) != dirfd(d)) open_files++;
  printf("open files %d\n", open_files);
  return 0;
}
