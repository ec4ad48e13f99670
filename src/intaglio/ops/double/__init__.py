"""Functions of float64 whose forms differ from those of float32."""
