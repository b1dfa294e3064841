// Hot code that is compiled and recompiled while it runs, null checks by SIGSEGV, exceptions,
// threads, an exit status.
public class Tasks {
  static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
  static int deep(int n) { if (n == 0) throw new IllegalStateException("bottom"); return deep(n - 1) + 1; }
  interface Shape { int area(); }
  public static void main(String[] arguments) throws Exception {
    int sum = 0;
    for (int i = 0; i < 20; i++) sum += fib(20);
    Shape[] shapes = {() -> 1, () -> 2, () -> 3};
    for (int i = 0; i < 30000; i++) sum += shapes[i % (i < 20000 ? 1 : 3)].area();
    int caught = 0;
    for (int i = 0; i < 3000; i++) {
      try { deep(i % 10); } catch (IllegalStateException e) { caught++; }
      try { String s = i % 3 == 0 ? null : "x"; caught += s.length(); } catch (NullPointerException e) { caught--; }
    }
    int[] parts = new int[4];
    Thread[] threads = new Thread[4];
    for (int t = 0; t < 4; t++) {
      final int id = t;
      threads[t] = new Thread(() -> { for (int i = 0; i < 50000; i++) parts[id] += i % (id + 2); });
      threads[t].start();
    }
    for (Thread t : threads) t.join();
    System.gc();
    System.out.println(sum + " " + caught + " " + (parts[0] + parts[1] + parts[2] + parts[3]));
    System.exit(7);
  }
}
