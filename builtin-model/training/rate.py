import time,sys
from collections import Counter
import numpy as np
from tokenizers import Tokenizer
import invented,mixture
from encode import Encoder
from source import Source
from data import encoded, packed, ROW
e=Encoder(Tokenizer.from_file('../model/tokenizer.json')); invented.learn_pieces(e.tokenizer.get_vocab())
s=Source(1)
for task in mixture.TASKS:
    t=time.process_time(); sm=[mixture.make(s,task) for _ in range(400)]; t1=time.process_time(); rows=encoded(e,sm); t2=time.process_time()
    L=[len(a)+len(b) for a,b in rows]
    print(f"{task:11} make {(t1-t)/400*1e6:5.0f} us  encode {(t2-t1)/400*1e6:5.0f} us  len mean {np.mean(L):.0f} p50 {np.median(L):.0f} p95 {np.percentile(L,95):.0f} max {max(L)}  answer {np.mean([len(b) for a,b in rows]):.0f}")
t=time.process_time(); tot=0; doc=0; ans=0
for _ in range(5):
    sm=[mixture.draw(s) for _ in range(400)]
    ids,d,w=packed(encoded(e,sm),e.end_of_text); tot+=(d>0).sum(); doc+=d.size; ans+=(w>0).sum()
dt=time.process_time()-t
print('tokens/s per core',tot/dt,'fill',tot/doc,'answer share',ans/doc)
