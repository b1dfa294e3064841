-- Laziness, exceptions, lightweight threads, an exit status.
import Control.Concurrent
import Control.Exception
import System.Exit

fib :: Int -> Int
fib n = if n < 2 then n else fib (n - 1) + fib (n - 2)

main :: IO ()
main = do
  print (fib 20)
  r <- try (evaluate (1 `div` (0 :: Int))) :: IO (Either ArithException Int)
  print r
  done <- newEmptyMVar
  mapM_ (\i -> forkIO (putMVar done (sum [1 .. i * 1000 :: Int]))) [1 .. 8]
  results <- mapM (const (takeMVar done)) [1 .. 8 :: Int]
  print (sum results)
  exitWith (ExitFailure 8)
