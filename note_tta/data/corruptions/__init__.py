"""The corruptions of CIFAR-C, ImageNet-C and MNIST-C, regenerated from clean images."""
