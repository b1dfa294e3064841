// Threads, panics that are caught and drop values on the way, a panic that ends its thread.
use std::{panic, thread};

#[no_mangle]
#[inline(never)]
pub extern "C" fn fib(n: u64) -> u64 {
    if n < 2 { n } else { fib(n - 1) + fib(n - 2) }
}

fn deep(n: u64) -> u64 {
    if n == 0 { panic!("bottom") } else { deep(n - 1) + 1 }
}

struct Dropped(u32);
impl Drop for Dropped {
    fn drop(&mut self) { println!("drop {}", self.0); }
}

fn main() {
    let threads: Vec<_> = (0..4u64)
        .map(|i| thread::spawn(move || (0..1000u64).fold(0, |s, k| s ^ (k * i))))
        .collect();
    let sum: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    println!("{} {}", sum, fib(20));
    for depth in 0..20 {
        let caught = panic::catch_unwind(|| { let _value = Dropped(1); deep(depth) });
        println!("{}", caught.is_err());
    }
    let thread = thread::spawn(|| { let _value = Dropped(2); panic!("in a thread"); });
    println!("{}", thread.join().is_err());
    std::process::exit(5);
}
