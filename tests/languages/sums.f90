! Array expressions, recursion, internal output, STOP in the middle of a call chain.
program sums
  implicit none
  integer :: i
  real(8) :: s, a(100)
  s = 0
  a = [(sqrt(real(i, 8)), i = 1, 100)]
  do i = 1, 1000
    s = s + sum(a) / i
  end do
  print *, 'sum', int(s), fib(20)
  call down(3)
contains
  recursive integer function fib(n) result(r)
    integer, intent(in) :: n
    if (n < 2) then
      r = n
    else
      r = fib(n - 1) + fib(n - 2)
    end if
  end function
  recursive subroutine down(n)
    integer, intent(in) :: n
    if (n == 0) stop 6
    call down(n - 1)
  end subroutine
end program
