// The program of Figure 2 of "Verifying Program Profiles": where its hash table lies decides
// whether every insertion collides.  Instrumentation moves the table.
#include <stdio.h>
#include <stdlib.h>

#define HASH_SIZE 1024
#define LOOP_COUNT 300
#define MOD 2

struct hash_entry {
  int data;
  struct hash_entry* next;
};
#ifdef PAD
char pad[PAD] = {1};
#endif
struct hash_entry* HashTable[HASH_SIZE] = {(void*)0};
static int collisions = 0;

int hash_value(int data) {
  long x = (long)HashTable;
  return (data * ((x / 0x100) % MOD)) % HASH_SIZE;
}

void hash_insert(int data) {
  int hash = hash_value(data);
  struct hash_entry* entry = malloc(sizeof(struct hash_entry));
  entry->data = data;
  entry->next = NULL;
  if (HashTable[hash] != NULL) {
    struct hash_entry* temp = HashTable[hash];
    collisions++;
    while (temp->next != NULL) {
      temp = temp->next;
    }
    temp->next = entry;
  } else {
    HashTable[hash] = entry;
  }
}

int main(void) {
  for (int i = 0; i < LOOP_COUNT; i++) {
    hash_insert(i);
  }
  printf("collisions = %d\n", collisions);
  return 0;
}
