(* Exceptions, which jump without unwinding; garbage collection; an exit status. *)
exception Bottom of int

let rec deep n = if n = 0 then raise (Bottom 42) else 1 + deep (n - 1)
let rec fib n = if n < 2 then n else fib (n - 1) + fib (n - 2)

(* Its handler begins right behind a call, that of the last raise. *)
let past limit list =
  try
    List.iter (fun x -> if x > limit then raise Exit) list;
    raise Not_found
  with Exit -> 1 | Not_found -> 2

let () =
  for i = 1 to 10 do ignore (past i [ 1; 3; 5 ]) done;
  let sum = ref 0 in
  for i = 1 to 200 do
    try ignore (deep i) with Bottom k -> sum := !sum + k
  done;
  Printf.printf "%d %d\n" !sum (fib 20);
  let table = Hashtbl.create 16 in
  for i = 1 to 100000 do Hashtbl.replace table (i * 7 mod 1001) (string_of_int i) done;
  Printf.printf "%d\n" (Hashtbl.length table);
  (try ignore (List.hd []) with Failure what -> print_endline what);
  (try ignore ([| 1; 2 |].(Hashtbl.length table)) with Invalid_argument what -> print_endline what);
  exit 9
