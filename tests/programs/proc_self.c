// Claim: /proc/self/exe, comm and open files are the program's own; only TracerPid may differ.
// build: gcc,clang O2 pie,nopie static,dynamic
// ci: gcc O2 nopie static
// oracle: output
// varies: process numbers with more digits make /proc/self/status longer
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  (void)argc;
  char path[4096] = "";
  if (readlink("/proc/self/exe", path, sizeof path - 1) < 0) return 1;
  printf("exe is argv[0]: %d\n", strcmp(path, argv[0]) == 0);
  FILE* f = fopen("/proc/self/comm", "r");
  if (!f || !fgets(path, sizeof path, f)) return 2;
  printf("comm %s", path);
  fclose(f);
  f = fopen("/proc/self/status", "r");
  while (f && fgets(path, sizeof path, f))
    if (!strncmp(path, "Threads", 7) || !strncmp(path, "Sig", 3) || !strncmp(path, "Shd", 3) ||
        !strncmp(path, "Seccomp:", 8) || !strncmp(path, "NoNewPrivs", 10))
      if (strncmp(path, "SigQ", 4)) fputs(path, stdout);
  fclose(f);
  DIR* d = opendir("/proc/self/fd");
  int open_files = 0;
  for (struct dirent* e; d && (e = readdir(d));)
    if (e->d_name[0] != '.' && atoi(e->d_name) != dirfd(d)) open_files++;
  printf("open files %d\n", open_files);
  return 0;
}
