--  Exceptions through call chains, hardware exceptions, tasks, an exit status.
with Ada.Text_IO;      use Ada.Text_IO;
with Ada.Command_Line;

procedure Raises is
   Bottom : exception;

   function Fib (N : Integer) return Integer is
     (if N < 2 then N else Fib (N - 1) + Fib (N - 2));

   procedure Deep (N : Integer) is
   begin
      if N = 0 then
         raise Bottom with "bottom";
      end if;
      Deep (N - 1);
   end Deep;

   task type Worker (Id : Integer);
   task body Worker is
      Sum : Integer := 0;
   begin
      for I in 1 .. 1000 loop
         Sum := (Sum * 3 + I + Id) mod 10007;
      end loop;
   end Worker;

   Zero : Integer := 0;
begin
   declare
      A : Worker (1);
      B : Worker (2);
   begin
      null;
   end;
   Put_Line (Integer'Image (Fib (20)));
   for I in 1 .. 20 loop
      begin
         Deep (I);
      exception
         when Bottom => Put_Line ("caught" & Integer'Image (I));
      end;
   end loop;
   begin
      Put_Line (Integer'Image (7 / Zero));
   exception
      when Constraint_Error => Put_Line ("division by zero");
   end;
   Ada.Command_Line.Set_Exit_Status (3);
end Raises;
