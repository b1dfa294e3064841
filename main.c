#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
void run(long);
int main(int c,char**v){char*b=mmap((void*)0x40000000,1<<20,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0);syscall(SYS_arch_prctl,0x1001,b);
double best=1e9;for(int k=0;k<7;k++){struct timespec a,z;clock_gettime(CLOCK_THREAD_CPUTIME_ID,&a);run(100000);clock_gettime(CLOCK_THREAD_CPUTIME_ID,&z);double t=(z.tv_sec-a.tv_sec)*1e9+z.tv_nsec-a.tv_nsec;if(t<best)best=t;}
printf("%s %.2f ns per dispatch\n",v[0],best/100000/201);}
