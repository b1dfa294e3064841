/* SQLite running an SQL file in memory.  A static position-independent program: it relocates
 * itself before main. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

static int print_row(void* unused, int columns, char** values, char** names) {
  (void)unused;
  (void)names;
  for (int i = 0; i < columns; i++) printf("%s%s", i ? "|" : "", values[i] ? values[i] : "");
  putchar('\n');
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  FILE* file = fopen(argv[1], "rb");
  if (!file) {
    perror(argv[1]);
    return 1;
  }
  static char sql[1 << 16];
  sql[fread(sql, 1, sizeof sql - 1, file)] = 0;
  fclose(file);
  sqlite3* db;
  char* message = NULL;
  if (sqlite3_open(":memory:", &db) != SQLITE_OK) return 1;
  if (sqlite3_exec(db, sql, print_row, NULL, &message) != SQLITE_OK) {
    fprintf(stderr, "%s\n", message);
    return 1;
  }
  return sqlite3_close(db);
}
