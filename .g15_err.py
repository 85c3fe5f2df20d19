import sys, warnings; warnings.simplefilter("ignore")
import torch, torch.nn.functional as F; torch.set_num_threads(1)
from torch import nn
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.spec import Spec
class L(nn.Module):
    def __init__(s,f): super().__init__(); s.f=f
    def forward(s,h): return s.f(h)
def net(f): return nn.Sequential(nn.Linear(8,6),L(f) if not isinstance(f,nn.Module) else f,nn.Flatten(),nn.LazyLinear(3))
class Fn(torch.autograd.Function):
    @staticmethod
    def forward(c,x): return x.round()
    @staticmethod
    def backward(c,g): return g
class Packed(nn.Module):
    def __init__(s): super().__init__(); s.l=nn.LSTM(2,4,batch_first=True)
    def forward(s,h):
        p=nn.utils.rnn.pack_padded_sequence(h.reshape(-1,3,2),torch.full((h.shape[0],),3),batch_first=True); return s.l(p)[1][0][0]
class Bag(nn.Module):
    def __init__(s): super().__init__(); s.e=nn.EmbeddingBag(10,4)
    def forward(s,h): return s.e(h.abs().long().clamp(max=9))
P=lambda h: h.reshape(-1,1,2,3)
N={
"quantile":lambda h:h*h.quantile(0.3,1,keepdim=True),
"grid bicubic":lambda h:F.grid_sample(P(h),torch.tanh(h).reshape(-1,1,3,2).expand(-1,2,-1,-1),mode="bicubic",align_corners=False),
"take_along":lambda h:torch.take_along_dim(h,h.argsort(1),1),
"maxunpool":lambda h:(lambda p:F.max_unpool1d(*p,2))(F.max_pool1d(h[:,None],2,return_indices=True)),
"det":lambda h:h*torch.det(h[:,:4].reshape(-1,2,2))[:,None],
"svd":lambda h:torch.linalg.svdvals(h.reshape(-1,2,3)),
"inverse":lambda h:torch.inverse(h[:,:4].reshape(-1,2,2)+3*torch.eye(2)),
"mask index":lambda h:h[h>0].sum()*h,
"nonzero":lambda h:h[:, (h.sum(0)>0).nonzero().flatten()],
"item":lambda h:h*h.max().item(),
"packed":Packed(),"bag":Bag(),
"custom fn":lambda h:Fn.apply(h)*h,
"loop":lambda h:torch.stack([r*2 for r in h]),
"einsum3":lambda h:torch.einsum("bi,bj,ij->bi",h,h,torch.ones(6,6)*.1),
"amax scatter":lambda h:torch.zeros_like(h).scatter_reduce(1,torch.tensor([0,1,1,2,3,3]).expand(h.shape[0],6),h,"amax",include_self=False),
"numpy":lambda h:h*torch.from_numpy(h.detach().numpy()),
"batchmean":lambda h:h-h.mean(0),
"wrong shape":lambda h:h.reshape(-1,7),
"random":lambda h:h+torch.randn_like(h),
"half":lambda h:h.half().float(),
}
for n in sys.argv[1:] or N:
    torch.manual_seed(0)
    try:
        m=net(N[n]); 
        try: m(torch.randn(4,8))
        except Exception as e: pass
        compile_module(m.eval(),Spec("m",(8,))); print("compiles",n,flush=True)
    except Exception as e: print("**",n,type(e).__name__,":",str(e)[:420].replace("\n"," | "),flush=True)
