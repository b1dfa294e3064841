#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
extern int pf(int);
volatile int sink;
__attribute__((noinline)) int f(int a){ __asm__ volatile(""); return a+1; }
__attribute__((noinline)) int fib(int n){ return n<2?n:fib(n-1)+fib(n-2); }
typedef int (*fp)(int);
static double now(){ struct timespec t; clock_gettime(CLOCK_MONOTONIC,&t); return t.tv_sec+1e-9*t.tv_nsec; }
int g0(int a){return a+2;} 
fp volatile vp = g0;
int g1(int a){return a+3;} int g2(int a){return a^3;} int g3(int a){return a-3;}
fp tab[4]={g0,g1,g2,g3};
#define C4(x) x x x x
#define C16(x) C4(x) C4(x) C4(x) C4(x)
#define C64(x) C16(x) C16(x) C16(x) C16(x)
__attribute__((noinline)) int loop1(long n){int s=0; for(long i=0;i<n;i++) s=f(s); return s;}
__attribute__((noinline)) int loop64(long n){int s=0; for(long i=0;i<n/64;i++) { C64(s=f(s);) } return s;}
__attribute__((noinline)) int loopplt(long n){int s=0; for(long i=0;i<n;i++) s=pf(s); return s;}
__attribute__((noinline)) int loopptr(long n){int s=0; for(long i=0;i<n;i++) s=vp(s); return s;}
__attribute__((noinline)) int looppoly(long n){int s=0; for(long i=0;i<n;i++) s=tab[i&3](s); return s;}
__attribute__((noinline)) int looprand(long n){int s=0; unsigned r=1; for(long i=0;i<n;i++) {r=r*1664525+1013904223; s=tab[r>>30](s);} return s;}
int main(int c,char**v){ long n=atol(v[1]); double t;
#define R(name,expr,cnt) t=now(); sink=expr; printf("%-8s %.2f ns\n",name,(now()-t)*1e9/(cnt));
R("loop1",loop1(n),n) R("loop64",loop64(n),n) R("fib",fib(30),1346269*2.0) R("plt",loopplt(n),n) R("ptr",loopptr(n),n) R("poly4",looppoly(n),n) R("rand4",looprand(n),n)
}
