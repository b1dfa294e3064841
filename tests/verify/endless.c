// Never ends.
volatile unsigned long turns;
int main(void) {
  for (;;) turns++;
}
