# Extension modules with threads of their own, exceptions through them, an exit status.
import sys
import numpy as np

a = np.arange(10000, dtype=np.float64).reshape(100, 100)
print(float((a @ a).trace()), float(np.linalg.det(np.eye(20) * 2)), int(np.sort(a[:, 3])[7]))
try:
    np.zeros((2, 3)) @ np.zeros((2, 3))
except ValueError:
    print("caught")
sys.exit(5)
